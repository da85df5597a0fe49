"""Optional OpenTelemetry traces: one for each job. Nothing of OpenTelemetry is imported unless they are asked for."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING

from aaiclick.errors import SettingsError
from aaiclick.settings import get_settings

if TYPE_CHECKING:
    from aaiclick.orchestration.tracing.spans import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The standard's own variables: where they say that there is a collector, it gets our spans as well."""

log = logging.getLogger(__name__)


@cache
def get_tracing() -> Tracing | None:
    """What makes this process's spans; None if nobody asked for any."""
    asked = get_settings().otel
    if asked is False or (asked is None and not any(os.environ.get(name) for name in ENDPOINTS)):
        return None
    try:
        from aaiclick.orchestration.tracing.spans import Tracing
    except ImportError as error:
        if asked is None:  # the endpoint is there for everything on this machine; that is no reason to refuse to work
            log.warning("no traces: OpenTelemetry is not installed (pip install 'aaiclick[otel]')")
            return None
        raise SettingsError(
            f"AAICLICK_OTEL: OpenTelemetry is not installed: {error}.", remedy="pip install 'aaiclick[otel]'"
        ) from None
    return Tracing()
