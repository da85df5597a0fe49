"""Limits of jobs: how many jobs of one name run at the same time, and what a further one does.

A job that has to wait gets a task before all others that waits for the end of an earlier job; no worker is occupied.
The unfinished jobs of a name form sequences, each of which runs one job at a time: a job waits for the last job of a
sequence, and there are as many sequences as jobs may run. If the job before it ends without its turn, it waits for the
one before that (`aaiclick_find_awaited_turn`). Submits and restarts of the same name are serialised by a lock.

A restart puts a job at the end of a sequence. Turns that name the job, or pass over it, must not wait for it again:
they get the unfinished job that they wait for instead, or none, if their turn has come. Old turns of the job get none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.enums import TURN_TYPE
from aaiclick.store.statements import statement
from aaiclick.store.task_options import DEFAULT_OPTIONS

if TYPE_CHECKING:
    from uuid import UUID

    from aaiclick.store.postgres_connections import Connection

TURN_ENTRYPOINT = "aaiclick.orchestration.waits.run_wait_for_turn"


@dataclass(frozen=True, slots=True)
class Admission:
    """How a job is submitted: not at all (`existing_id` runs instead), after another job, or at once."""

    existing_id: int | None = None
    awaited_id: int | None = None


@dataclass(frozen=True, slots=True)
class UnfinishedJob:
    """An unfinished job with a limit, and the unfinished job that it waits for: None if it runs, or may."""

    id: int
    awaited_id: int | None = None
    waiting: bool = False
    """It has not begun; without an awaited job it is about to."""
    cancelled: bool = False


def choose_awaited(unfinished: Sequence[UnfinishedJob], concurrency: int) -> int | None:
    """The job that a further one waits for: the last of a sequence; None if it may run."""
    if sum(job.awaited_id is None for job in unfinished) < concurrency:
        return None
    with_followers = {job.awaited_id for job in unfinished}
    return next((job.id for job in unfinished if job.id not in with_followers), unfinished[-1].id)


async def list_unfinished(connection: Connection, org_id: UUID, name: str) -> list[UnfinishedJob]:
    """Unfinished jobs of a name that have a limit, in order of submission; the caller has locked the name."""
    rows = await connection.fetch(statement("list_limited_jobs"), org_id, name)
    return [UnfinishedJob(row["id"], row["awaited_id"], row["waiting"], row["cancelled"]) for row in rows]


async def admit_job(connection: Connection, job: NewJob) -> Admission:
    """Decide how a limited job is submitted, and cancel jobs that it replaces; in the transaction of the submit."""
    assert job.policy.concurrency is not None  # noqa: S101  (the caller checks it)
    await connection.execute(statement("lock_job_name"), job.org_id, job.name)
    if job.idempotency_key is not None:
        key = job.org_id, job.name, job.idempotency_key
        if (existing_id := await connection.fetchval(statement("find_job_by_key"), *key)) is not None:
            return Admission(existing_id=existing_id)
    jobs = await list_unfinished(connection, job.org_id, job.name)
    if (awaited_id := choose_awaited(jobs, job.policy.concurrency)) is None:
        return Admission()
    if job.policy.when_busy == "skip":
        return Admission(existing_id=jobs[-1].id)
    replaced: list[int] = []
    if job.policy.when_busy == "keep_newest":
        replaced = [other.id for other in jobs if other.waiting]
    elif job.policy.when_busy == "cancel_running":
        oldest = jobs[: len(jobs) - job.policy.concurrency + 1]
        replaced = [other.id for other in oldest if not other.cancelled]  # a second request cancels final tasks too
    for job_id in replaced:
        await cancel_job(connection, job_id)
    if replaced:
        awaited_id = choose_awaited(await list_unfinished(connection, job.org_id, job.name), job.policy.concurrency)
    return Admission(awaited_id=awaited_id)


def make_turn(awaited_id: int) -> NewTask:
    """A task that waits for the end of a job."""
    return NewTask(get_snowflake_id(), TURN_TYPE, TURN_ENTRYPOINT, json.dumps({"job_id": str(awaited_id)}))


def is_turn(task: Any) -> bool:
    """Whether the row of a task is that of a wait for the turn of its job."""
    return (task["type"], task["entrypoint"]) == (TURN_TYPE, TURN_ENTRYPOINT)


def add_turn(plan: Plan, awaited_id: int) -> Plan:
    """The plan with a task that waits for a job before all nodes without predecessors."""
    turn = make_turn(awaited_id)
    with_predecessors = {following for _, following in plan.edges}
    roots = [task.id for task in plan.tasks if task.group_id is None and task.id not in with_predecessors]
    roots += [group.id for group in plan.groups if group.parent_group_id is None and group.id not in with_predecessors]
    edges = [*plan.edges, *((turn.id, root) for root in roots)]
    return replace(plan, tasks=[turn, *plan.tasks], edges=edges)


async def lock_limited_job(connection: Connection, job_id: int) -> None:
    """Lock a job, and its name first if it has a limit: its restart changes how many jobs run."""
    await connection.execute(statement("lock_name_of_limited_job"), job_id)
    await connection.execute(statement("lock_job"), job_id)


async def await_turn_of_restart(connection: Connection, job_id: int, task_ids: Sequence[int]) -> None:
    """Let tasks that will be restarted wait for the turn of their job if it has ended and others run.

    The caller has locked the job by `lock_limited_job`.
    """
    row = await connection.fetchrow(statement("get_job_limit"), job_id)
    if row is None or row["concurrency"] is None or not task_ids:
        return
    if row["ended"]:
        await connection.execute(statement("settle_turns"), row["org_id"], row["name"])
    await connection.execute(statement("discard_turns"), job_id, row["ended"])
    if not row["ended"]:
        return
    awaited_id = choose_awaited(await list_unfinished(connection, row["org_id"], row["name"]), row["concurrency"])
    if awaited_id is not None:
        turn = make_turn(awaited_id)
        columns = turn.id, turn.type, turn.entrypoint, turn.kwargs
        await connection.execute(statement("insert_turn"), job_id, row["org_id"], *columns, list(task_ids))
        await notify_ready(connection, {DEFAULT_OPTIONS.queue})
