"""Reading jobs and tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.store.references import resolve, results_needed
from aaiclick.store.statements import statement
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Origins:
    """Where tasks come from: definitions, and tasks that added them."""

    definitions: tuple[UUID, ...] = ()
    tasks: tuple[int, ...] = ()


NOWHERE = Origins()


async def get_job(connection: Connection, job_id: int) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_job"), job_id)


async def next_task(connection: Connection, job_id: int) -> asyncpg.Record | None:
    """The first task of a job that could run, if none of it runs."""
    return await connection.fetchrow(statement("next_task"), job_id)


async def list_jobs(
    connection: Connection,
    *,
    status: str | None = None,
    org_id: UUID | None = None,
    before: int = LAST_ID,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """Newest first; the last id is the `before` of the next page."""
    return await connection.fetch(statement("list_jobs"), org_id, status, before, limit)


async def get_task(connection: Connection, task_id: int) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_task"), task_id)


async def list_tasks(
    connection: Connection, job_id: int, *, after: int = 0, limit: int = 1_000
) -> list[asyncpg.Record]:
    """In the order of their ids; the last id is the `after` of the next page."""
    return await connection.fetch(statement("list_tasks"), job_id, after, limit)


async def task_results(connection: Connection, job_id: int, task_ids: Sequence[int]) -> dict[int, str | None]:
    """Task id → what it returned, as JSON text; only of tasks of the job."""
    rows = await connection.fetch(statement("task_results"), list(task_ids), job_id)
    return {row["id"]: row["result"] for row in rows}


async def resolve_arguments(connection: Connection, job_id: int | None, kwargs: str) -> str:
    """Arguments of a task, as JSON text, with the results of other tasks of its job in their places."""
    given = json.loads(kwargs)
    needed = results_needed(given)
    if not needed or job_id is None:
        return kwargs
    found = await task_results(connection, job_id, sorted(needed))
    return json.dumps(resolve(given, {task_id: text and json.loads(text) for task_id, text in found.items()}))


async def job_results(connection: Connection, job_id: int, limit: int) -> list[asyncpg.Record]:
    """What a job came to: the results of the tasks that nothing waits for."""
    return await connection.fetch(statement("job_results"), job_id, limit)


async def group_results(connection: Connection, group_id: int, job_id: int | None = None) -> list[asyncpg.Record]:
    """What the tasks of a group returned, in the order of their ids; only of the job, if one is given."""
    return await connection.fetch(statement("group_results"), group_id, job_id)


async def job_progress(connection: Connection, job_id: int) -> list[asyncpg.Record]:
    """How many tasks of each group are where; the group named '' is what is in none."""
    return await connection.fetch(statement("job_progress"), job_id)


async def queue_depths(connection: Connection, org_id: UUID | None = None) -> list[asyncpg.Record]:
    """Every queue with its depth, limits and pause."""
    return await connection.fetch(statement("queue_depths"), org_id)


async def list_dead_letters(
    connection: Connection,
    *,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
    org_id: UUID | None = None,
    before: tuple[datetime, int] | None = None,
    limit: int = 100,
    untold: Origins = NOWHERE,
) -> list[asyncpg.Record]:
    """Newest first; the end and id of the last are the `before` of the next page."""
    ended, last_id = before or (None, None)
    return await connection.fetch(
        statement("list_dead_letters"), org_id, type, fingerprint, ended, last_id, limit,
        untold.definitions, untold.tasks,
    )  # fmt: skip


async def group_dead_letters(
    connection: Connection, org_id: UUID | None = None, untold: Origins = NOWHERE
) -> list[asyncpg.Record]:
    """By fingerprint, most frequent first."""
    return await connection.fetch(statement("group_dead_letters"), org_id, untold.definitions, untold.tasks)


def began(job: Mapping[str, Any] | asyncpg.Record) -> datetime | None:
    """When the last run of a job began: when it was started over, if it was, so that no time counts in which it had
    ended.
    """
    started, restarted = job["started_at"], job["restarted_at"]
    return max(started, restarted) if started and restarted else started


async def dead_letters_by_org(
    connection: Connection,
    *,
    task_ids: Sequence[int] | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
) -> list[asyncpg.Record]:
    """`org_id` and `count` of whom they belong to; their `ids` if some were named."""
    ids = None if task_ids is None else list(task_ids)
    return await connection.fetch(statement("dead_letters_by_org"), type, fingerprint, ids)


async def dead_letter_origins(connection: Connection, org_id: UUID) -> list[asyncpg.Record]:
    """What dead letters belong to: `definition_id` or `added_by`, and the `id` of one of each."""
    return await connection.fetch(statement("dead_letter_origins"), org_id)


async def tasks_of_job(
    connection: Connection,
    org_id: UUID,
    job_id: int,
    *,
    status: str | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    after: int = 0,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """In the order of their ids; the last id is the `after` of the next page."""
    return await connection.fetch(statement("tasks_of_job"), org_id, job_id, after, status, type, limit)


async def tasks_of_org(
    connection: Connection,
    org_id: UUID,
    *,
    status: str | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    queue: str | None = None,
    before: int = LAST_ID,
    limit: int = 100,
) -> list[asyncpg.Record]:
    """Newest first. There is no index for what the filters leave out: rare things are better asked for by their job."""
    text = statement("tasks_of_default_org") if org_id == DEFAULT_ORG_ID else statement("tasks_of_org")
    return await connection.fetch(text, org_id, before, status, type, queue, limit)


async def task_of_key(
    connection: Connection,
    org_id: UUID,
    type: str,  # noqa: A002  (the column's name)
    idempotency_key: str,
) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("task_of_key"), org_id, type, idempotency_key)


async def task_attempts(connection: Connection, task_id: int) -> list[asyncpg.Record]:
    """What became of the attempts of a task that did not succeed."""
    return await connection.fetch(statement("task_attempts"), task_id)


async def job_attempts(connection: Connection, job_id: int, *, limit: int = 1_000) -> list[asyncpg.Record]:
    """Attempts of a job that did not succeed, latest first."""
    return await connection.fetch(statement("job_attempts"), job_id, limit)


async def workers_of(
    connection: Connection, org_id: UUID, *, stopped: bool = False, after: int = 0, limit: int = 100
) -> list[asyncpg.Record]:
    """Workers that serve an org: its own, and those that serve everybody."""
    return await connection.fetch(statement("list_workers_of"), org_id, after, stopped, limit)


async def worker_of(connection: Connection, org_id: UUID, worker_id: int) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_worker_of"), org_id, worker_id)
