"""What pages read. Each statement is bounded: it looks at so many rows and no more, however large the tables are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.settings import get_settings
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

WINDOW = 20_000
"""Jobs that one search looks at; an older part of the list is another search."""

COUNTED = 10_000
"""Counts are not followed past this."""

COUNTED_EACH = 1_000
"""The same, of each of many."""

RATE_MINUTES = 5
"""What queues get done is a mean over this minute and the four before it."""

SOME = 2_000
"""Tasks at either end of a job that are looked at while all of them are counted."""

DETAILED = 1_000
"""Tasks of a job that are looked at one by one; those of a larger one are looked at by kind."""


async def find_jobs(
    connection: Connection,
    org_id: UUID,
    *,
    status: str | None,
    words: str | None,
    before: int,
    limit: int,
) -> list[asyncpg.Record]:
    """Newest first, among the WINDOW jobs older than `before`."""
    return await connection.fetch(statement("ui_find_jobs"), org_id, before, WINDOW, status, _like(words), limit)


async def unfinished_jobs(
    connection: Connection, org_id: UUID, *, status: str | None, words: str | None, before: int, limit: int
) -> list[asyncpg.Record]:
    """Newest first."""
    return await connection.fetch(statement("ui_unfinished_jobs"), org_id, before, status, _like(words), limit)


async def jobs_gone_wrong(
    connection: Connection, org_id: UUID, *, status: str, before: int, limit: int
) -> list[asyncpg.Record]:
    """Those that failed, or those that were cancelled, newest first."""
    return await connection.fetch(statement("ui_jobs_gone_wrong"), org_id, before, status, limit)


async def jobs_named(
    connection: Connection, org_id: UUID, name: str, *, status: str | None, before: int, limit: int
) -> list[asyncpg.Record]:
    """All with exactly this name, newest first."""
    return await connection.fetch(statement("ui_jobs_named"), org_id, name, before, status, limit)


async def window_end(connection: Connection, org_id: UUID, before: int) -> int | None:
    """The oldest job that a search looked at; None if it looked at all there are."""
    return await connection.fetchval(statement("ui_window_end"), org_id, before, WINDOW - 1)


async def count_jobs(connection: Connection, org_id: UUID) -> asyncpg.Record:
    """By state: of the unfinished, and of the last COUNTED ones that have ended."""
    row = await connection.fetchrow(statement("ui_count_jobs"), org_id, COUNTED)
    assert row is not None  # noqa: S101  (an aggregate)
    return row


async def prefer_indexes(connection: Connection) -> None:
    """For the rest of the transaction: plans that suit large tables, analysed or not."""
    await connection.execute(statement("ui_prefer_indexes"))


async def job_units(connection: Connection, job_id: int) -> list[asyncpg.Record]:
    """Tasks of a job by group, type and where they are: how many, and from when to when they worked."""
    return await connection.fetch(statement("ui_job_units"), job_id)


async def job_units_some(connection: Connection, job_id: int) -> list[asyncpg.Record]:
    """The same, of the first and the last SOME tasks alone."""
    return await connection.fetch(statement("ui_job_units_some"), job_id, SOME)


async def job_running(connection: Connection, job_id: int) -> int:
    """How many tasks of a job are at work."""
    return int(await connection.fetchval(statement("ui_job_running"), job_id))


async def job_tasks(connection: Connection, job_id: int, limit: int = DETAILED + 1) -> list[asyncpg.Record]:
    """Tasks of a job, as far as a drawing needs them."""
    return await connection.fetch(statement("ui_job_tasks"), job_id, limit)


async def tasks_of_job(
    connection: Connection, job_id: int, *, status: str | None, kind: str | None, after: int, limit: int
) -> list[asyncpg.Record]:
    """In the order of their ids; the last id is the `after` of the next page. Of a state that is common, or of any,
    those among the next WINDOW tasks; of one that is rare, all.
    """
    match status:
        case "FAILED" | "DEAD_LETTER":
            return await connection.fetch(
                statement("ui_failed_tasks_of_job"), job_id, after, status, kind, limit, WINDOW
            )
        case "CLAIMED" | "RUNNING":
            return await connection.fetch(statement("ui_working_tasks_of_job"), job_id, after, status, kind, limit)
        case _:
            return await connection.fetch(statement("ui_tasks_of_job"), job_id, after, status, kind, limit, WINDOW)


async def tasks_window_end(connection: Connection, job_id: int, after: int) -> int | None:
    """The last task that such a look saw; None if it saw all there are."""
    return await connection.fetchval(statement("ui_tasks_window_end"), job_id, after, WINDOW - 1)


async def job_groups(connection: Connection, job_id: int, limit: int = 2_000) -> list[asyncpg.Record]:
    return await connection.fetch(statement("ui_job_groups"), job_id, limit)


async def unit_samples(
    connection: Connection, job_id: int, first_ids: Sequence[int], most: int = 5
) -> list[asyncpg.Record]:
    """A few tasks of each kind of a large job, whose first ones are given: (id, group, type)."""
    return await connection.fetch(statement("ui_unit_samples"), job_id, list(first_ids), most)


async def dataset_edges(connection: Connection, task_ids: Sequence[int], limit: int = 10_000) -> list[tuple[int, int]]:
    """(task that makes a dataset, task that reads it) among some tasks of DAGs."""
    rows = await connection.fetch(statement("ui_dataset_edges"), list(task_ids), limit)
    return [(row["previous_id"], row["next_id"]) for row in rows]


async def edges_into(connection: Connection, node_ids: Sequence[int], limit: int = 10_000) -> list[tuple[int, int]]:
    """(previous, next) of everything that these wait for."""
    rows = await connection.fetch(statement("ui_edges_into"), list(node_ids), limit)
    return [(row["previous_id"], row["next_id"]) for row in rows]


async def tasks_named(connection: Connection, task_ids: Sequence[int]) -> list[asyncpg.Record]:
    """(id, group, type) of tasks."""
    return await connection.fetch(statement("ui_tasks_named"), list(task_ids))


async def job_history(connection: Connection, job_id: int, limit: int = 200) -> list[asyncpg.Record]:
    """Attempts of a job that did not succeed, latest first."""
    return await connection.fetch(statement("ui_job_history"), job_id, limit)


async def talking_tasks(connection: Connection, job_id: int, limit: int) -> list[asyncpg.Record]:
    """Tasks of a job whose logs are shown together: those at work, and the last that ended."""
    return await connection.fetch(statement("ui_talking_tasks"), job_id, limit)


async def queues_of(connection: Connection, org_id: UUID, *, after: str = "", limit: int) -> list[asyncpg.Record]:
    """By name, those after one: every queue that has a setting or anything that waits or runs, or was worked on within
    a day. Counts end at COUNTED; `completed` and `failed` are attempts a minute, over the last RATE_MINUTES.
    """
    return await connection.fetch(statement("ui_queues"), org_id, COUNTED, RATE_MINUTES, after, limit)


async def org_shares(connection: Connection, limit: int = 200) -> list[asyncpg.Record]:
    """Every org with what waits and runs of it and what it gets done, the busiest first; counts end at COUNTED_EACH."""
    return await connection.fetch(statement("ui_org_shares"), COUNTED_EACH, limit, RATE_MINUTES)


async def figures_now(connection: Connection, org_id: UUID) -> asyncpg.Record:
    """How the org stands at this moment; counts end at COUNTED."""
    row = await connection.fetchrow(statement("ui_figures"), org_id, COUNTED, get_settings().worker_timeout_seconds)
    assert row is not None  # noqa: S101
    return row


async def worker_totals(connection: Connection) -> asyncpg.Record:
    """What all workers that there are have completed and failed."""
    row = await connection.fetchrow(statement("ui_worker_totals"))
    assert row is not None  # noqa: S101
    return row


async def recent_jobs(connection: Connection, org_id: UUID, after: int, step: int) -> list[asyncpg.Record]:
    """Jobs past an id, counted by steps of so many ids and by status, of the last WINDOW."""
    return await connection.fetch(statement("ui_recent_jobs"), org_id, after, WINDOW, step)


async def job_speed(connection: Connection, org_id: UUID) -> asyncpg.Record:
    """How long the last jobs waited and took."""
    row = await connection.fetchrow(statement("ui_job_speed"), org_id, 1_000)
    assert row is not None  # noqa: S101
    return row


async def workers(
    connection: Connection, org_id: UUID, *, stopped: bool, limit: int, offset: int
) -> list[asyncpg.Record]:
    """Workers that serve an org, the newest first."""
    return await connection.fetch(statement("ui_workers"), org_id, stopped, limit, offset)


async def worker_tasks(connection: Connection, worker_id: int, limit: int = 200) -> list[asyncpg.Record]:
    """What a worker has in hand."""
    return await connection.fetch(statement("ui_worker_tasks"), worker_id, limit)


async def workers_busy(connection: Connection, org_id: UUID) -> dict[int, int]:
    """Worker → how many tasks of the org it has in hand."""
    rows = await connection.fetch(statement("ui_workers_busy"), org_id)
    return {row["worker_id"]: row["running"] for row in rows}


async def table_owners(
    connection: Connection, tables: Sequence[str], limit: int = 5_000
) -> dict[str, list[asyncpg.Record]]:
    """Table → which tasks and jobs of the org hold it: first whose result it is."""
    found: dict[str, list[asyncpg.Record]] = {}
    for row in await connection.fetch(statement("ui_table_owners"), list(tables), limit):
        found.setdefault(row["table_name"], []).append(row)
    return found


async def downstream(connection: Connection, task_id: int) -> list[int]:
    """The task and every task that comes after it."""
    rows = await connection.fetch(statement("downstream"), task_id)
    return sorted(row["id"] for row in rows if row["is_task"])


async def neighbours(connection: Connection, task_id: int, limit: int = 50) -> list[asyncpg.Record]:
    """What a task waits for, and what waits for it: tasks and groups."""
    return await connection.fetch(statement("ui_neighbours"), task_id, limit)


def _like(words: str | None) -> str | None:
    if not words:
        return None
    escaped = words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
