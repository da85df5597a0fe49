"""Dynamic tasks: nodes that a running task adds to its job, and tasks that return tasks.

Everything an attempt adds depends on its task, by ordinary dependencies, and becomes ready when the task completes. If
the attempt fails, its additions have not run, and a later completion deletes them (`discard_additions`): a task that
fans out, fails and is retried fans out once.

A task that returns tasks waits for those after it has run, and its additions no longer wait for it
(`await_returned_tasks`). When they have completed, the statement `advance_tasks` completes it without a worker, and
their results replace the placeholders in its own (`resolve_returned_results`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.engine.leases_and_outcomes import Failure, Success, seconds_since, to_cancelled_failure
from aaiclick.store.engine.result_placeholders import referenced_task_ids, resolve_placeholders, temporary_tables_in
from aaiclick.store.statements import statement
from aaiclick.store.tables.table_references import hold_results

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


@dataclass(slots=True)
class PropagationDelta:
    """Graph changes to propagate besides the ended tasks.

    `tasks`, `groups` and `handlers` have one predecessor less; further fields are groups with `removed_members`,
    `failed_tasks` (task, job) that failed before they had dependents, and nodes that a branch left out.
    """

    tasks: list[int] = field(default_factory=list[int])
    groups: list[int] = field(default_factory=list[int])
    handlers: list[int] = field(default_factory=list[int])
    removed_members: Counter[int] = field(default_factory=Counter[int])
    failed_tasks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    skipped_tasks: list[int] = field(default_factory=list[int])
    skipped_groups: list[int] = field(default_factory=list[int])


async def discard_additions(connection: Connection, ended: Sequence[tuple[int, int]], delta: PropagationDelta) -> None:
    """Delete nodes added by other attempts than these (task, attempt); attempt 0 deletes all additions.

    The caller holds the exclusive graph lock of the job.
    """
    ids, attempts = [task_id for task_id, _ in ended], [attempt for _, attempt in ended]
    for row in await connection.fetch(statement("discard_additions"), ids, attempts):
        match row["kind"]:
            case "job":
                counts = (row["gone"], row["open"], row["failed"], row["cancelled"])
                await connection.execute(statement("remove_job_tasks"), row["id"], *counts)
            case "group":
                delta.removed_members[row["id"]] += row["gone"]
            case "waiting task":
                delta.tasks.append(row["id"])
            case "waiting handler":
                delta.handlers.append(row["id"])
            case _:
                delta.groups.append(row["id"])


async def await_returned_tasks(
    connection: Connection, success: Success, delta: PropagationDelta, now: datetime | None
) -> asyncpg.Record | Failure | None:
    """Make the task of a success wait for the tasks it returned.

    Returns its row, None if its lease is lost, or a failure if it returned tasks of others.
    """
    lease, awaits = success.lease, sorted(set(success.awaits))
    row = await connection.fetchrow(statement("lock_lease"), lease.task_id, lease.attempt, lease.token)
    if row is None:
        return None
    if row["cancelled"]:
        return to_cancelled_failure(success)
    job_id = row["job_id"]
    rows = await connection.fetch(statement("mark_has_dependents"), awaits, job_id)
    if len(rows) < len(awaits) or any(row["added_by"] != lease.task_id for row in rows):
        foreign = sorted(set(awaits) - {row["id"] for row in rows if row["added_by"] == lease.task_id})
        error = f"The task returned tasks that it had not added itself: {', '.join(map(str, foreign))}."
        return Failure(lease, error, "returned foreign tasks", permanent=True)
    unmet = sum(row["status"] != "COMPLETED" for row in rows)
    row = await connection.fetchrow(
        statement("block_on_returned_tasks"), lease.task_id, lease.attempt, lease.token, success.result,
        seconds_since(success.began), unmet, now,
    )  # fmt: skip
    await connection.execute(statement("insert_returned_dependencies"), awaits, lease.task_id)
    for node in await connection.fetch(statement("delete_addition_gates"), lease.task_id, lease.attempt):
        by_type = {"task": delta.tasks, "group": delta.groups, "handler": delta.handlers}
        by_type[node["next_type"]].append(node["next_id"])
    delta.failed_tasks += [(row["id"], job_id) for row in rows if row["ended"] and row["status"] != "COMPLETED"]
    return row


async def resolve_returned_results(connection: Connection, task_ids: Sequence[int]) -> None:
    """Replace placeholders in the results of tasks after their returned tasks have completed."""
    for row in await connection.fetch(statement("load_results"), list(task_ids)):
        template = json.loads(row["result"])
        result_rows = await connection.fetch(statement("load_results"), sorted(referenced_task_ids(template)))
        results = {task["id"]: task["result"] and json.loads(task["result"]) for task in result_rows}
        value = resolve_placeholders(template, results)
        await hold_results(connection, row["id"], temporary_tables_in(value))
        await connection.execute(statement("set_result"), row["id"], None if value is None else json.dumps(value))
