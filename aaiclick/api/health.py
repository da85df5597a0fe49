"""Schemas of health checks."""

from __future__ import annotations

from aaiclick._version import __version__
from aaiclick.api.field_types import ApiModel


class LivenessResponse(ApiModel):
    """The process responds."""

    status: str = "ok"
    version: str = __version__


class CheckResult(ApiModel):
    """Result of one check."""

    name: str
    ok: bool
    detail: str


class HealthResponse(ApiModel):
    """Whether every check passed (`ok`), and the result of each."""

    ok: bool
    checks: list[CheckResult]
