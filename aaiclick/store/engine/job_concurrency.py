"""Limits of jobs: how many jobs of one name run at the same time, and what a further one does.

A job that has to wait gets a task before all others that waits for the end of an earlier job; no worker is occupied.
It waits for the N-th newest unfinished job, for a limit of N: the jobs form N sequences, each of which runs one job at
a time. Submits of the same name are serialised by a lock.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.plan import NewTask, Plan
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection

TURN_TYPE = "wait_for_turn"
TURN_ENTRYPOINT = "aaiclick.orchestration.waits.run_wait_for_turn"


@dataclass(frozen=True, slots=True)
class Admission:
    """How a job is submitted: not at all (`existing_id` runs instead), after another job, or at once."""

    existing_id: int | None = None
    awaited_id: int | None = None


def choose_awaited(unfinished_ids: Sequence[int], concurrency: int) -> int | None:
    """The job that a new one waits for; `unfinished_ids` are in order of submission."""
    return None if len(unfinished_ids) < concurrency else unfinished_ids[-concurrency]


async def admit_job(connection: Connection, job: NewJob) -> Admission:
    """Decide how a limited job is submitted, and cancel jobs that it replaces; in the transaction of the submit."""
    assert job.concurrency is not None  # noqa: S101  (the caller checks it)
    await connection.execute(statement("lock_job_name"), job.org_id, job.name)
    if job.idempotency_key is not None:
        key = job.org_id, job.name, job.idempotency_key
        if (existing_id := await connection.fetchval(statement("find_job_by_key"), *key)) is not None:
            return Admission(existing_id=existing_id)
    rows = await connection.fetch(statement("list_limited_jobs"), job.org_id, job.name)
    ids = [row["id"] for row in rows]
    if len(ids) < job.concurrency:
        return Admission()
    if job.when_busy == "skip":
        return Admission(existing_id=ids[-1])
    replaced: list[int] = []
    if job.when_busy == "keep_newest":
        replaced = [row["id"] for row in rows if row["waiting"]]
    elif job.when_busy == "cancel_running":
        replaced = ids[: len(ids) - job.concurrency + 1]
    for job_id in replaced:
        await cancel_job(connection, job_id)
    remaining = await connection.fetch(statement("list_limited_jobs"), job.org_id, job.name) if replaced else rows
    return Admission(awaited_id=choose_awaited([row["id"] for row in remaining], job.concurrency))


def add_turn(plan: Plan, awaited_id: int) -> Plan:
    """The plan with a task that waits for a job before all nodes without predecessors."""
    turn = NewTask(get_snowflake_id(), TURN_TYPE, TURN_ENTRYPOINT, json.dumps({"job_id": str(awaited_id)}))
    with_predecessors = {following for _, following in plan.edges}
    roots = [task.id for task in plan.tasks if task.group_id is None and task.id not in with_predecessors]
    roots += [group.id for group in plan.groups if group.parent_group_id is None and group.id not in with_predecessors]
    edges = [*plan.edges, *((turn.id, root) for root in roots)]
    return replace(plan, tasks=[turn, *plan.tasks], edges=edges)
