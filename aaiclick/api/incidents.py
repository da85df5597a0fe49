"""Schemas of incidents."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from aaiclick.api.field_types import RequestModel, Snowflake
from aaiclick.store.enums import IncidentRule, Severity

IncidentState = Literal["open", "acknowledged", "snoozed", "closed"]
MAX_SNOOZE_SECONDS = 30 * 86_400


class SnoozeIncidentRequest(RequestModel):
    """How long no messages are sent."""

    seconds: Annotated[float, Field(gt=0, le=MAX_SNOOZE_SECONDS)] = 3600.0


class Incident(BaseModel):
    """A failure that occurred once or more often; `cause` is null if the reader's roles hide it."""

    id: Snowflake
    state: IncidentState
    rule: IncidentRule
    fingerprint: str
    severity: Severity
    title: str
    cause: str | None
    count: int = Field(description="Number of occurrences")
    opened_at: datetime
    last_at: datetime = Field(description="Time of the last occurrence")
    dag_name: str | None
    job_name: str | None
    task_type: str | None = Field(description="Type of the failed task; the name of a failing channel")
    tags: list[str]
    job_id: Snowflake | None = Field(description="Job of the last occurrence")
    task_id: Snowflake | None = Field(description="Task of the last occurrence")
    command: str | None = Field(description="Command that may fix it")
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    snoozed_until: datetime | None
    escalated_at: datetime | None
    closed_at: datetime | None
    closed_by: str | None = Field(description="Who closed it; 'recovery' if it is over")


def fix_command(
    rule: str,
    *,
    job_id: int | None,
    task_id: int | None,
    task_type: str | None,
    error_fingerprint: str | None,
) -> str | None:
    """The command that fixes the cause of an incident, or shows more of it."""
    match rule:
        case "job_failed" if job_id is not None:
            return f"aaiclick jobs retry {job_id}"
        case "task_failed" if error_fingerprint and '"' not in error_fingerprint:
            return f'aaiclick dlq redrive --fingerprint "{error_fingerprint}"'
        case "event_unroutable":
            return "aaiclick events retry --all"
        case "channel_failing":
            return f"aaiclick notify test {task_type}"
        case "source_dead" if task_id is None:
            return "aaiclick workers ls"
        case _:
            return None if task_id is None else f"aaiclick tasks show {task_id}"
