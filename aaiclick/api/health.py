"""Schemas of health checks."""

from __future__ import annotations

from pydantic import BaseModel

from aaiclick._version import __version__


class LivenessResponse(BaseModel):
    """The process responds."""

    status: str = "ok"
    version: str = __version__


class CheckResult(BaseModel):
    """Result of one check."""

    name: str
    ok: bool
    detail: str


class HealthResponse(BaseModel):
    """Whether every check passed (`ok`), and the result of each."""

    ok: bool
    checks: list[CheckResult]
