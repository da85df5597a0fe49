"""Conversion of the store's rows to the models of aaiclick.api."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from aaiclick.api.field_types import RetryPolicy
from aaiclick.api.jobs import GroupProgress, Job
from aaiclick.api.tasks import Attempt, Task, TaskDetail
from aaiclick.api.workers import Queue, TaskType, Worker
from aaiclick.catalog.task_output_summary import summarize_outputs
from aaiclick.orchestration.job_labels import split_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from aaiclick.operations.actor import Actor

    Row = Mapping[str, Any] | asyncpg.Record

Model = TypeVar("Model", bound=BaseModel)

_HIDDEN_WORKER_FIELDS = ("hostname", "pid", "tasks_completed", "tasks_failed", "code_version")


def from_row(model: type[Model], row: Row, **fields: object) -> Model:
    """Build a model from the columns of the same names, and other fields."""
    return model(**{name: row[name] for name in model.model_fields if name not in fields}, **fields)


def to_job(row: Row, code_versions: list[str] | None = None) -> Job:
    trigger: dict[str, Any] = {} if row["trigger"] is None else json.loads(row["trigger"])
    is_scheduled = row["schedule_id"] is not None
    tags, owner = split_labels({} if row["tags"] is None else json.loads(row["tags"]))
    return from_row(
        Job,
        row,
        schedule=trigger.get("schedule") if is_scheduled else None,
        nominal_at=trigger.get("nominal") if is_scheduled else None,
        entrypoint=trigger.get("entrypoint"),
        tags=tags,
        owner=owner,
        code_versions=code_versions,
    )


def to_task(row: Row) -> Task:
    return from_row(Task, row, output_summary=summarize_outputs(row["outputs"]))


def to_task_detail(row: Row, attempts: Sequence[Row]) -> TaskDetail:
    return from_row(
        TaskDetail,
        row,
        output_summary=summarize_outputs(row["outputs"]),
        kwargs=json.loads(row["kwargs"]),
        result=None if row["result"] is None else json.loads(row["result"]),
        attempts=[from_row(Attempt, attempt) for attempt in attempts],
    )


def to_group_progress(row: Row) -> GroupProgress:
    return from_row(GroupProgress, row, group=row["name"])


def to_queue(row: Row) -> Queue:
    return from_row(Queue, row, name=row["queue"], weight=row["weight"] or 1)


def to_task_type(row: Row) -> TaskType:
    return from_row(TaskType, row, retry_policy=row["retry_policy"] and RetryPolicy(**json.loads(row["retry_policy"])))


def to_worker(actor: Actor, row: Row) -> Worker:
    """Convert a worker; host and counts of a shared worker are hidden from other organisations than the operator's."""
    shared = row["org_id"] is None
    is_hidden = shared and not actor.is_operator
    return from_row(Worker, row, shared=shared, **(dict.fromkeys(_HIDDEN_WORKER_FIELDS) if is_hidden else {}))
