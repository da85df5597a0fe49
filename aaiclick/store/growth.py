"""Work that grows while it runs: what becomes of a task's additions, and tasks that return tasks.

Whatever an attempt adds to its job waits for its task, by ordinary dependencies. It begins when the task completes; if
the attempt does not, it never ran, and the completion of a later attempt deletes it (`discard`). So a task that fans
out, fails and is tried again fans out once.

A task that returns tasks has run, but is not done: it waits again, now for those, and what it added no longer waits
for it (`hand_over`). When they have completed, `advance_tasks.sql` completes it without a worker, and their results
take their places in its own (`fill_in`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.leases import Failure, Success, cancelled_attempt, seconds_since
from aaiclick.store.references import resolve, results_needed, tables_in
from aaiclick.store.statements import statement
from aaiclick.store.tables import hold_results

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


@dataclass(slots=True)
class Loosened:
    """What changed besides the tasks that ended: nodes that wait for one less, groups that lost members, tasks that
    ended without success before somebody began to wait for them.
    """

    tasks: list[int] = field(default_factory=list[int])
    groups: list[int] = field(default_factory=list[int])
    left: Counter[int] = field(default_factory=Counter[int])
    hopeless: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


async def discard(connection: Connection, ended: Sequence[tuple[int, int]], loosened: Loosened) -> None:
    """Delete what other attempts than these (task, attempt) have added; 0 is none: delete all.

    The caller holds the graph lock of the job alone.
    """
    ids, attempts = [task_id for task_id, _ in ended], [attempt for _, attempt in ended]
    for row in await connection.fetch(statement("discard_additions"), ids, attempts):
        match row["kind"]:
            case "job":
                counts = (row["gone"], row["open"], row["failed"], row["cancelled"])
                await connection.execute(statement("shrink_job"), row["id"], *counts)
            case "group":
                loosened.left[row["id"]] += row["gone"]
            case "waiting task":
                loosened.tasks.append(row["id"])
            case _:
                loosened.groups.append(row["id"])


async def hand_over(
    connection: Connection, success: Success, loosened: Loosened, now: datetime | None
) -> asyncpg.Record | Failure | None:
    """The task of a success waits for the tasks that it returned. None if its lease is lost; a failure if it cannot."""
    lease, awaits = success.lease, sorted(set(success.awaits))
    row = await connection.fetchrow(statement("hold_lease"), lease.task_id, lease.attempt, lease.token)
    if row is None:
        return None
    if row["cancelled"]:
        return cancelled_attempt(success)
    held = row["job_id"]
    rows = await connection.fetch(statement("follow"), awaits, held)
    if len(rows) < len(awaits) or any(row["added_by"] != lease.task_id for row in rows):
        foreign = sorted(set(awaits) - {row["id"] for row in rows if row["added_by"] == lease.task_id})
        error = f"It returned tasks that it had not added itself: {', '.join(map(str, foreign))}."
        return Failure(lease, error, "returned foreign tasks", permanent=True)
    unmet = sum(row["status"] != "COMPLETED" for row in rows)
    row = await connection.fetchrow(
        statement("return_tasks"), lease.task_id, lease.attempt, lease.token, success.result,
        seconds_since(success.began), unmet, now,
    )  # fmt: skip
    await connection.execute(statement("await_returned"), awaits, lease.task_id)
    for node in await connection.fetch(statement("ungate"), lease.task_id, lease.attempt):
        (loosened.tasks if node["next_type"] == "task" else loosened.groups).append(node["next_id"])
    loosened.hopeless += [(each["id"], held) for each in rows if each["ended"] and each["status"] != "COMPLETED"]
    return row


async def fill_in(connection: Connection, task_ids: Sequence[int]) -> None:
    """Tasks whose returned tasks have completed: put the results of those into theirs."""
    for row in await connection.fetch(statement("returned_forms"), list(task_ids)):
        form = json.loads(row["result"])
        found = await connection.fetch(statement("returned_forms"), sorted(results_needed(form)))
        results = {each["id"]: each["result"] and json.loads(each["result"]) for each in found}
        value = resolve(form, results)
        await hold_results(connection, row["id"], tables_in(value))
        await connection.execute(statement("set_result"), row["id"], None if value is None else json.dumps(value))
