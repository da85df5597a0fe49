"""Queries of the web UI for jobs, tasks, queues and workers. Each reads a bounded number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.settings import get_settings
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

SEARCH_WINDOW = 20_000
"""Rows that one search reads; older rows need another search."""

MAX_COUNT = 10_000
"""Upper bound of counts."""

MAX_COUNT_PER_ORG = 1_000
"""Upper bound of counts in a list of orgs."""

RATE_MINUTES = 5
"""Throughput of queues is a mean over this minute and the four before it."""

UNIT_SAMPLE_TASKS = 2_000
"""Tasks at either end of a job that are sampled while the full count is computed."""

MAX_DETAILED_TASKS = 1_000
"""Most tasks of a job that are shown individually; those of a larger one are grouped into units."""


async def find_jobs(
    connection: Connection,
    org_id: UUID,
    *,
    status: str | None,
    search: str | None,
    before: int,
    limit: int,
) -> list[asyncpg.Record]:
    """Matching jobs, newest first, among the SEARCH_WINDOW jobs older than `before`."""
    return await connection.fetch(
        statement("find_jobs"), org_id, before, SEARCH_WINDOW, status, _to_like_pattern(search), limit
    )


async def list_unfinished_jobs(
    connection: Connection, org_id: UUID, *, status: str | None, search: str | None, before: int, limit: int
) -> list[asyncpg.Record]:
    """Matching unfinished jobs, newest first."""
    return await connection.fetch(
        statement("list_unfinished_jobs"), org_id, before, status, _to_like_pattern(search), limit
    )


async def list_unsuccessful_jobs(
    connection: Connection, org_id: UUID, *, status: str, before: int, limit: int
) -> list[asyncpg.Record]:
    """Failed or cancelled jobs (by `status`), newest first."""
    return await connection.fetch(statement("list_unsuccessful_jobs"), org_id, before, status, limit)


async def list_jobs_by_name(
    connection: Connection, org_id: UUID, name: str, *, status: str | None, before: int, limit: int
) -> list[asyncpg.Record]:
    """Jobs with exactly this name, newest first."""
    return await connection.fetch(statement("list_jobs_by_name"), org_id, name, before, status, limit)


async def find_window_end(connection: Connection, org_id: UUID, before: int) -> int | None:
    """The oldest job that a search read; None if it read all."""
    return await connection.fetchval(statement("find_window_end"), org_id, before, SEARCH_WINDOW - 1)


async def count_jobs(connection: Connection, org_id: UUID) -> asyncpg.Record:
    """Numbers of jobs by state: unfinished ones, and the last MAX_COUNT ended ones."""
    row = await connection.fetchrow(statement("count_jobs"), org_id, MAX_COUNT)
    assert row is not None  # noqa: S101  (an aggregate)
    return row


async def prefer_indexes(connection: Connection) -> None:
    """Prefer index plans for the rest of the transaction, also without statistics."""
    await connection.execute(statement("prefer_indexes"))


async def load_job_units(connection: Connection, job_id: int) -> list[asyncpg.Record]:
    """Units of a job: tasks by group, type and state, with counts and time ranges."""
    return await connection.fetch(statement("load_job_units"), job_id)


async def sample_job_units(connection: Connection, job_id: int) -> list[asyncpg.Record]:
    """Units of a job, computed from its first and last UNIT_SAMPLE_TASKS tasks."""
    return await connection.fetch(statement("sample_job_units"), job_id, UNIT_SAMPLE_TASKS)


async def count_running_tasks(connection: Connection, job_id: int) -> int:
    """Number of leased tasks of a job."""
    return int(await connection.fetchval(statement("count_running_tasks"), job_id))


async def list_graph_tasks(
    connection: Connection, job_id: int, limit: int = MAX_DETAILED_TASKS + 1
) -> list[asyncpg.Record]:
    """Tasks of a job with the columns of the graph."""
    return await connection.fetch(statement("list_graph_tasks"), job_id, limit)


async def search_job_tasks(
    connection: Connection, job_id: int, *, status: str | None, task_type: str | None, after: int, limit: int
) -> list[asyncpg.Record]:
    """Matching tasks by id; the last id is the `after` of the next page.

    For failed and leased tasks all are searched, otherwise the next SEARCH_WINDOW tasks.
    """
    match status:
        case "FAILED" | "DEAD_LETTER":
            return await connection.fetch(
                statement("search_failed_tasks"), job_id, after, status, task_type, limit, SEARCH_WINDOW
            )
        case "CLAIMED" | "RUNNING":
            return await connection.fetch(statement("search_leased_tasks"), job_id, after, status, task_type, limit)
        case _:
            return await connection.fetch(
                statement("search_job_tasks"), job_id, after, status, task_type, limit, SEARCH_WINDOW
            )


async def find_task_window_end(connection: Connection, job_id: int, after: int) -> int | None:
    """The last task that such a search read; None if it read all."""
    return await connection.fetchval(statement("find_task_window_end"), job_id, after, SEARCH_WINDOW - 1)


async def list_graph_groups(connection: Connection, job_id: int, limit: int = 2_000) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_graph_groups"), job_id, limit)


async def sample_unit_tasks(
    connection: Connection, job_id: int, first_ids: Sequence[int], per_unit: int = 5
) -> list[asyncpg.Record]:
    """(id, group, type) of a few tasks of each unit of a large job; `first_ids` are the first tasks of the units."""
    return await connection.fetch(statement("sample_unit_tasks"), job_id, list(first_ids), per_unit)


async def list_dataset_edges(
    connection: Connection, task_ids: Sequence[int], limit: int = 10_000
) -> list[tuple[int, int]]:
    """(producer, consumer) of datasets among some tasks of DAGs."""
    rows = await connection.fetch(statement("list_dataset_edges"), list(task_ids), limit)
    return [(row["previous_id"], row["next_id"]) for row in rows]


async def list_incoming_edges(
    connection: Connection, node_ids: Sequence[int], limit: int = 10_000
) -> list[tuple[int, int]]:
    """(previous, next) of the dependencies of these nodes."""
    rows = await connection.fetch(statement("list_incoming_edges"), list(node_ids), limit)
    return [(row["previous_id"], row["next_id"]) for row in rows]


async def load_task_names(connection: Connection, task_ids: Sequence[int]) -> list[asyncpg.Record]:
    """(id, group, type) of tasks."""
    return await connection.fetch(statement("load_task_names"), list(task_ids))


async def list_failed_attempts(connection: Connection, job_id: int, limit: int = 200) -> list[asyncpg.Record]:
    """Attempts of a job that did not succeed, latest first."""
    return await connection.fetch(statement("list_failed_attempts"), job_id, limit)


async def list_tasks_with_logs(connection: Connection, job_id: int, limit: int) -> list[asyncpg.Record]:
    """Tasks of a job for the combined log view: leased ones, and the last that started."""
    return await connection.fetch(statement("list_tasks_with_logs"), job_id, limit)


async def list_queues(connection: Connection, org_id: UUID, *, after: str = "", limit: int) -> list[asyncpg.Record]:
    """Queues by name: those with settings, unfinished tasks, or activity within a day.

    Counts are bounded by MAX_COUNT; `completed` and `failed` are attempts per minute over the last RATE_MINUTES.
    """
    return await connection.fetch(statement("list_queues"), org_id, MAX_COUNT, RATE_MINUTES, after, limit)


async def list_org_shares(connection: Connection, limit: int = 200) -> list[asyncpg.Record]:
    """Orgs with waiting and running tasks and throughput, busiest first; counts are bounded by MAX_COUNT_PER_ORG."""
    return await connection.fetch(statement("list_org_shares"), MAX_COUNT_PER_ORG, limit, RATE_MINUTES)


async def load_org_counts(connection: Connection, org_id: UUID) -> asyncpg.Record:
    """Current counts of the org for the overview, bounded by MAX_COUNT."""
    row = await connection.fetchrow(
        statement("load_org_counts"), org_id, MAX_COUNT, get_settings().worker_timeout_seconds
    )
    assert row is not None  # noqa: S101
    return row


async def load_worker_totals(connection: Connection) -> asyncpg.Record:
    """Sums of completed and failed attempts over all workers."""
    row = await connection.fetchrow(statement("load_worker_totals"))
    assert row is not None  # noqa: S101
    return row


async def count_recent_jobs(connection: Connection, org_id: UUID, after: int, step: int) -> list[asyncpg.Record]:
    """Numbers of jobs after an id, by intervals of `step` ids and by status, among the last SEARCH_WINDOW."""
    return await connection.fetch(statement("count_recent_jobs"), org_id, after, SEARCH_WINDOW, step)


async def load_job_latencies(connection: Connection, org_id: UUID) -> asyncpg.Record:
    """Waiting and run times of the last ended jobs."""
    row = await connection.fetchrow(statement("load_job_latencies"), org_id, 1_000)
    assert row is not None  # noqa: S101
    return row


async def list_org_workers(
    connection: Connection, org_id: UUID, *, stopped: bool, limit: int, offset: int
) -> list[asyncpg.Record]:
    """Workers that serve an org, newest first."""
    return await connection.fetch(statement("list_org_workers"), org_id, stopped, limit, offset)


async def list_worker_tasks(connection: Connection, worker_id: int, limit: int = 200) -> list[asyncpg.Record]:
    """Leased tasks of a worker."""
    return await connection.fetch(statement("list_worker_tasks"), worker_id, limit)


async def count_tasks_by_worker(connection: Connection, org_id: UUID) -> dict[int, int]:
    """Worker → number of its leased tasks of the org."""
    rows = await connection.fetch(statement("count_tasks_by_worker"), org_id)
    return {row["worker_id"]: row["running"] for row in rows}


async def load_table_owners(
    connection: Connection, tables: Sequence[str], limit: int = 5_000
) -> dict[str, list[asyncpg.Record]]:
    """Table → tasks and jobs that reference it, as a result first."""
    owners: dict[str, list[asyncpg.Record]] = {}
    for row in await connection.fetch(statement("load_table_owners"), list(tables), limit):
        owners.setdefault(row["table_name"], []).append(row)
    return owners


async def list_neighbours(connection: Connection, task_id: int, limit: int = 50) -> list[asyncpg.Record]:
    """Predecessors and dependents of a task: tasks and groups."""
    return await connection.fetch(statement("list_neighbours"), task_id, limit)


def _to_like_pattern(search: str | None) -> str | None:
    if not search:
        return None
    escaped = search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
