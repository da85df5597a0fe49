"""Queries for jobs, tasks, dead letters and workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.store.engine.result_placeholders import referenced_task_ids, resolve_placeholders
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.json_types import JsonText, SnowflakeId
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

LAST_ID = 2**63 - 1
MAX_TREE_JOBS = 200
MAX_TREE_LEVELS = 20


@dataclass(frozen=True, slots=True)
class Origins:
    """Origins of tasks: definitions, and tasks that added them."""

    definitions: tuple[UUID, ...] = ()
    tasks: tuple[int, ...] = ()


NO_ORIGINS = Origins()


async def get_job(connection: Connection, job_id: int) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_job"), job_id)


async def list_code_versions(connection: Connection, job_id: int, *, limit: int = 1_000) -> list[str]:
    """Versions of the code that ran the first tasks of a job."""
    rows = await connection.fetch(statement("list_code_versions"), job_id, limit)
    return [row["code_version"] for row in rows]


async def list_job_tree(connection: Connection, job_id: int) -> list[asyncpg.Record]:
    """A job with the child jobs below it, each after its parent."""
    return await connection.fetch(statement("list_job_tree"), job_id, MAX_TREE_JOBS, MAX_TREE_LEVELS)


async def find_next_task(connection: Connection, job_id: int) -> asyncpg.Record | None:
    """The first runnable task of a job, if none of its tasks runs."""
    return await connection.fetchrow(statement("find_next_task"), job_id)


async def list_jobs(
    connection: Connection,
    *,
    status: str | None = None,
    org_id: UUID | None = None,
    labels: Mapping[str, str] | None = None,
    before: int = LAST_ID,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """List jobs, newest first, with all of the labels; the last id is the `before` of the next page."""
    if labels:
        tags = json.dumps(dict(labels))
        return await connection.fetch(statement("list_tagged_jobs"), org_id, status, before, limit, tags)
    return await connection.fetch(statement("list_jobs"), org_id, status, before, limit)


async def get_task(connection: Connection, task_id: int) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_task"), task_id)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task, and the times of its attempt."""

    task_id: SnowflakeId
    result: JsonText | None
    attempt: int | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    literal: str | None = None
    """The value of a small result, as encoded text."""
    failure: JsonText | None = None
    """The failure of a task that is not critical: its dependents run without a result."""


async def load_task_results(connection: Connection, job_id: int, task_ids: Sequence[int]) -> dict[int, TaskResult]:
    """Results by task id; only of tasks of the job."""
    rows = await connection.fetch(statement("load_task_results"), list(task_ids), job_id)
    return {
        row["id"]: TaskResult(
            row["id"], row["result"], completed_at=row["completed_at"], literal=row["literal"], failure=row["failure"]
        )
        for row in rows
    }


async def resolve_arguments(connection: Connection, job_id: int | None, kwargs: str) -> str:
    """Arguments of a task as JSON text, with placeholders replaced by the results of tasks of its job."""
    arguments = json.loads(kwargs)
    needed = referenced_task_ids(arguments)
    if not needed or job_id is None:
        return kwargs
    results = await load_task_results(connection, job_id, sorted(needed))
    values = {task_id: result.result and json.loads(result.result) for task_id, result in results.items()}
    return json.dumps(resolve_placeholders(arguments, values))


async def load_job_results(
    connection: Connection, job_id: int, limit: int | None = None, *, after: int = 0
) -> list[asyncpg.Record]:
    """Final results of a job: those of tasks without dependents, in order of their ids."""
    return await connection.fetch(statement("load_job_results"), job_id, limit, after)


async def load_group_results(connection: Connection, group_id: int, job_id: int | None = None) -> list[TaskResult]:
    """Results of the tasks of a group by id; only of `job_id`, unless it is None."""
    rows = await connection.fetch(statement("load_group_results"), group_id, job_id)
    return [
        TaskResult(row["id"], row["result"], row["attempt"], row["started_at"], row["completed_at"]) for row in rows
    ]


async def load_job_progress(connection: Connection, job_id: int) -> list[asyncpg.Record]:
    """Task counts of a job by group and state; the group '' stands for tasks without one."""
    return await connection.fetch(statement("load_job_progress"), job_id)


async def load_queue_depths(connection: Connection, org_id: UUID | None = None) -> list[asyncpg.Record]:
    """Every queue with its depth, limits and pause state."""
    return await connection.fetch(statement("load_queue_depths"), org_id)


async def load_queue_scale(connection: Connection, org_id: UUID, name: str, limit: int) -> asyncpg.Record:
    """Waiting tasks (at most `limit`) and running tasks of a queue, and how long the oldest has waited."""
    row = await connection.fetchrow(statement("load_queue_scale"), org_id, name, limit)
    assert row is not None  # noqa: S101  (aggregates return one row)
    return row


async def list_dead_letters(
    connection: Connection,
    *,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
    org_id: UUID | None = None,
    before: tuple[datetime, int] | None = None,
    limit: int = 100,
    hidden: Origins = NO_ORIGINS,
) -> list[asyncpg.Record]:
    """List dead letters, newest first; the end and id of the last are the `before` of the next page."""
    ended, last_id = before or (None, None)
    return await connection.fetch(
        statement("list_dead_letters"), org_id, type, fingerprint, ended, last_id, limit,
        hidden.definitions, hidden.tasks,
    )  # fmt: skip


async def group_dead_letters(
    connection: Connection, org_id: UUID | None = None, hidden: Origins = NO_ORIGINS
) -> list[asyncpg.Record]:
    """Count dead letters by fingerprint, most frequent first."""
    return await connection.fetch(statement("group_dead_letters"), org_id, hidden.definitions, hidden.tasks)


def last_run_started_at(job: Mapping[str, Any] | asyncpg.Record) -> datetime | None:
    """When the last run of a job began: its restart, if there was one, so that idle time does not count."""
    started, restarted = job["started_at"], job["restarted_at"]
    return max(started, restarted) if started and restarted else started


async def list_orgs_of_dead_letters(
    connection: Connection,
    *,
    task_ids: Sequence[int] | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
) -> list[UUID]:
    """Organisations with dead letters of these ids, this type and this fingerprint."""
    ids = None if task_ids is None else list(task_ids)
    rows = await connection.fetch(statement("list_orgs_of_dead_letters"), type, fingerprint, ids)
    return [row["org_id"] for row in rows]


async def list_dead_letter_origins(connection: Connection, org_id: UUID) -> list[asyncpg.Record]:
    """Distinct origins of dead letters: `definition_id` or `added_by`, and the `id` of one example each."""
    return await connection.fetch(statement("list_dead_letter_origins"), org_id)


async def list_tasks_of_job(
    connection: Connection,
    org_id: UUID,
    job_id: int,
    *,
    status: str | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    after: int = 0,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """List tasks of a job by id; the last id is the `after` of the next page."""
    return await connection.fetch(statement("list_tasks_of_job"), org_id, job_id, after, status, type, limit)


async def list_tasks_of_org(
    connection: Connection,
    org_id: UUID,
    *,
    status: str | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    queue: str | None = None,
    before: int = LAST_ID,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """List tasks of an org, newest first. The filters have no index: a filter that matches few tasks scans many."""
    text = statement("list_tasks_of_default_org") if org_id == DEFAULT_ORG_ID else statement("list_tasks_of_org")
    return await connection.fetch(text, org_id, before, status, type, queue, limit)


async def find_task_by_key(
    connection: Connection,
    org_id: UUID,
    type: str,  # noqa: A002  (the column's name)
    idempotency_key: str,
) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("find_task_by_key"), org_id, type, idempotency_key)


async def list_task_attempts(connection: Connection, task_id: int) -> list[asyncpg.Record]:
    """Attempts of a task that did not succeed."""
    return await connection.fetch(statement("list_task_attempts"), task_id)


async def list_job_attempts(connection: Connection, job_id: int, *, limit: int = 1_000) -> list[asyncpg.Record]:
    """Attempts of a job that did not succeed, latest first."""
    return await connection.fetch(statement("list_job_attempts"), job_id, limit)


async def list_workers_for_org(
    connection: Connection, org_id: UUID | None, *, stopped: bool = False, after: int = 0, limit: int = 100
) -> list[asyncpg.Record]:
    """Workers that serve an org (None: any): its own, and those that serve all orgs."""
    return await connection.fetch(statement("list_workers_for_org"), org_id, after, stopped, limit)


async def get_worker_for_org(connection: Connection, org_id: UUID | None, worker_id: int) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_worker_for_org"), org_id, worker_id)
