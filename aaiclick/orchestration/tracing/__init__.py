"""Optional OpenTelemetry traces, one per job. OpenTelemetry is imported only if they are enabled.

- `spans`: spans of jobs, submissions and attempts
"""

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
"""Standard environment variables; if one of them names a collector, traces are enabled."""

log = logging.getLogger(__name__)


@cache
def get_tracing() -> Tracing | None:
    """Tracing of this process; None if traces are disabled."""
    enabled = get_settings().otel
    if enabled is False or (enabled is None and not any(os.environ.get(name) for name in ENDPOINTS)):
        return None
    try:
        from aaiclick.orchestration.tracing.spans import Tracing
    except ImportError as error:
        if enabled is None:  # the endpoint may be meant for other programs: no reason to fail
            log.warning("no traces: OpenTelemetry is not installed (pip install 'aaiclick[otel]')")
            return None
        raise SettingsError(
            f"AAICLICK_OTEL: OpenTelemetry is not installed: {error}.", remedy="pip install 'aaiclick[otel]'"
        ) from None
    return Tracing()
