"""Requests that create schedules."""

from __future__ import annotations

from typing import Any

from aaiclick.api.schedules import ScheduleRequest
from aaiclick.orchestration.schedules import NewSchedule


def make_schedule_request(new: NewSchedule, *, replace: bool = False) -> ScheduleRequest:
    """The request that creates a schedule."""
    spec = new.spec
    every = None if spec.every is None else f"{spec.every.total_seconds():.0f}s"
    fields: dict[str, Any] = {
        "name": new.name, "entrypoint": new.entrypoint, "job_name": new.job_name, "item_type": new.item_type,
        "kwargs": dict(new.kwargs or {}), "cron": spec.cron, "every": every, "timezone": spec.timezone,
        "missed": spec.missed, "max_missed": spec.max_missed, "overlap": spec.overlap,
        "nominal_parameter": new.nominal_parameter, "nominal_type": new.nominal_type or "datetime",
        "timeout_seconds": new.timeout_seconds, "replace": replace,
    }  # fmt: skip
    return ScheduleRequest.model_validate(fields)
