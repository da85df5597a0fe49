"""Run a job again: what was submitted then, as a new job. What its tasks added themselves, they will add again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aaiclick.errors import SubmitError
from aaiclick.snowflake import get_snowflake_id, get_snowflake_ids
from aaiclick.store.plan import NewGroup, NewTask, Plan
from aaiclick.store.references import RESULT, resolve, tables_in
from aaiclick.store.statements import statement
from aaiclick.store.submit import NewJob, submit_job

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

MOST = 10_000


async def run_again(connection: Connection, job: Any) -> int:
    """The id of the new job."""
    if job["definition_id"] is not None or job["dag_version_id"] is not None:
        raise SubmitError("This job was started by a DAG.", remedy="Fire its source again, or start a backfill.")
    tasks = await connection.fetch(statement("ui_again_tasks"), job["id"], MOST + 1)
    groups = await connection.fetch(statement("ui_again_groups"), job["id"], MOST + 1)
    if len(tasks) > MOST or len(groups) > MOST:
        raise SubmitError(
            f"This job was submitted with more than {MOST} tasks.", remedy="Submit it where it came from."
        )
    old = [row["id"] for row in (*groups, *tasks)]
    new = dict(zip(old, get_snowflake_ids(len(old)), strict=True))
    edges = await connection.fetch(statement("ui_edges_into"), old, 20 * MOST)
    names = {new[row["id"]]: row["type"] for row in tasks}
    references = {task_id: {"object_type": RESULT, "task_id": str(new_id)} for task_id, new_id in new.items()}
    made: list[NewTask] = []
    tables: list[tuple[int, str]] = []
    for row in tasks:
        kwargs = resolve(json.loads(row["kwargs"]), references)
        tables += [(new[row["id"]], table) for table in tables_in(kwargs)]
        made.append(_task(row, new, json.dumps(kwargs)))
    plan = Plan(
        made,
        [NewGroup(new[row["id"]], row["name"], new.get(row["parent_group_id"])) for row in groups],
        [(new[edge["previous_id"]], new[edge["next_id"]]) for edge in edges if edge["previous_id"] in new],
        tables,
    )
    again = NewJob(get_snowflake_id(), job["name"], job["org_id"], job["timeout_seconds"])
    return await submit_job(connection, again, plan, names)


def _task(row: Any, new: Mapping[int, int], kwargs: str) -> NewTask:
    return NewTask(
        new[row["id"]],
        row["type"],
        row["entrypoint"],
        kwargs,
        new.get(row["group_id"]),
        row["queue"],
        row["priority"],
        row["max_attempts"],
        row["timeout_seconds"],
        row["retry_policy"],
        None,
        None,
        row["concurrency_key"],
        row["concurrency_limit"],
        row["critical"],
    )
