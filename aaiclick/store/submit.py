"""Submitting jobs and adding to them: everything in one transaction, in bulk by COPY."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import UUID

from aaiclick import faults
from aaiclick.errors import LeaseLost, LimitError, NotFoundError, SubmitError
from aaiclick.store.cancel import cancel_job
from aaiclick.store.claims import notify_ready
from aaiclick.store.clock import clock
from aaiclick.store.leases import Lease
from aaiclick.store.plan import Counters, Known, NewGroup, NewTask, Plan, count, refuse_cycle
from aaiclick.store.propagate import settle
from aaiclick.store.slots import admit
from aaiclick.store.statements import statement
from aaiclick.store.tables import hold_arguments
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

P = ParamSpec("P")
T = TypeVar("T")

SMALL_PLAN = 500
"""Tasks and edges of a plan that is checked at once."""

TASK_COLUMNS = (
    "id", "org_id", "job_id", "group_id", "queue", "type", "entrypoint", "kwargs", "priority", "unmet", "followed",
    "readiness", "available_at", "max_attempts", "timeout_seconds", "retry_policy", "idempotency_key",
    "concurrency_key", "concurrency_limit", "critical",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a job may become, and how many times tasks may be added by tasks that were added."""

    max_tasks: int = 5_000_000
    max_depth: int = 1_000

    def check(self, job: str, tasks: int, depth: int = 0) -> None:
        if tasks > self.max_tasks:
            raise LimitError(
                f"{job} would have {tasks} tasks; a job may have {self.max_tasks}.",
                remedy="If it does not grow without end, raise AAICLICK_JOB_MAX_TASKS.",
            )
        if depth > self.max_depth:
            raise LimitError(
                f"{job} has grown by tasks that add tasks {depth - 1} times in a row; {self.max_depth} are allowed.",
                remedy="If it does not grow without end, raise AAICLICK_JOB_MAX_DEPTH.",
            )


@dataclass(frozen=True, slots=True)
class NewJob:
    id: int
    name: str
    org_id: UUID = DEFAULT_ORG_ID
    timeout_seconds: float | None = None
    idempotency_key: str | None = None
    definition_id: UUID | None = None
    dag_version_id: UUID | None = None
    trigger: str | None = None


async def submit_job(
    connection: Connection,
    job: NewJob,
    plan: Plan,
    names: Mapping[int, str] | None = None,
    *,
    limits: Limits | None = None,
    now: datetime | None = None,
) -> int:
    """Insert a job with everything in `plan`; returns its id, or that of the job that has its idempotency key."""
    (limits or Limits()).check(f"Job {job.name!r}", len(plan.tasks))
    counters = await _compute(plan, _check_new, plan, names or {})
    async with faults.transaction(connection, "submit"):
        inserted = await connection.fetchval(
            statement("insert_job"), job.id, job.org_id, job.name, job.timeout_seconds, len(plan.tasks),
            job.idempotency_key, job.definition_id, job.dag_version_id, job.trigger,
        )  # fmt: skip
        if inserted is None:
            return int(await connection.fetchval(statement("job_by_key"), job.org_id, job.name, job.idempotency_key))
        await _insert(connection, job.org_id, job.id, plan, counters, set(), None, now)
        await hold_arguments(connection, job.id, plan.tables, plan.adopted, names or {}, job.org_id)
        if not plan.tasks:
            await settle(connection, completed=Counter({job.id: 0}), now=now)
    return job.id


def _check_new(plan: Plan, names: Mapping[int, str]) -> Counters:
    refuse_cycle(plan, names)
    _refuse_unknown(plan, set(), names)
    return count(plan, Known())


async def _compute(plan: Plan, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function whose time grows with the plan: in a thread, unless the plan is small."""
    if len(plan.tasks) + len(plan.edges) <= SMALL_PLAN:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


async def add_to_job(
    connection: Connection,
    job_id: int,
    plan: Plan,
    names: Mapping[int, str] | None = None,
    lease: Lease | None = None,
    *,
    limits: Limits | None = None,
    now: datetime | None = None,
) -> None:
    """Add to a job that has not ended.

    With `lease`, only while its holder has it, and what is added waits for the holder's task (see `growth`). A job that
    its own tasks grow past a limit is ended.
    """
    try:
        async with faults.transaction(connection, "add"):
            await connection.execute(statement("lock_job"), job_id)
            adder = await _fence(connection, job_id, lease)
            await _add(connection, job_id, plan, names or {}, adder, limits or Limits(), now)
    except LimitError as error:
        if lease is not None:
            await cancel_job(connection, job_id, error=str(error), now=now)
        raise


async def _add(
    connection: Connection,
    job_id: int,
    plan: Plan,
    names: Mapping[int, str],
    adder: Adder | None,
    limits: Limits,
    now: datetime | None,
) -> None:
    head = await connection.fetchrow(statement("job_head"), job_id)
    if head is None:
        raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
    job = f"Job {job_id} ({head['name']!r})"
    gated = plan if adder is None else _gated(plan, adder.task_id)
    known, closed = await _look_up(connection, job_id, gated, names, adder)
    # The task that adds is running: nothing that it gates can come before it.
    await _compute(plan, refuse_cycle, plan, names, await _rest_of_graph(connection, job_id, plan, known))
    counters = await _compute(plan, count, gated, known)
    await _insert(connection, head["org_id"], job_id, gated, counters, closed, adder, now)
    await hold_arguments(connection, job_id, plan.tables, plan.adopted, names, head["org_id"])
    grown = {group: added for group in known.groups if (added := counters.open[group])}
    if grown:
        await connection.execute(statement("grow_groups"), list(grown), list(grown.values()))
    total = await connection.fetchval(statement("grow_job"), job_id, len(plan.tasks))
    if total is None:
        state = "being cancelled" if head["cancelled"] else "over"
        raise SubmitError(
            f"{job} is {state}: nothing can be added to it.",
            remedy="Submit a new job, or add tasks from a task of the job while it runs.",
        )
    limits.check(job, total, adder.depth + 1 if adder is not None else 0)


@dataclass(frozen=True, slots=True)
class Adder:
    """The attempt that adds."""

    task_id: int
    attempt: int
    depth: int


async def _fence(connection: Connection, job_id: int, lease: Lease | None) -> Adder | None:
    if lease is None:
        return None
    row = await connection.fetchrow(statement("hold_lease"), lease.task_id, lease.attempt, lease.token)
    if row is None or row["job_id"] != job_id:
        raise LeaseLost(
            f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease; nothing was added to job {job_id}.",
            remedy="Stop: another attempt is at work or has finished.",
        )
    return Adder(lease.task_id, lease.attempt, row["depth"])


def _gated(plan: Plan, task_id: int) -> Plan:
    """The plan with everything in it after the task: what is first in it, and in no new group, waits for the task."""
    new = {task.id for task in plan.tasks} | {group.id for group in plan.groups}
    inner = {following for previous, following in plan.edges if previous in new}
    inner |= {task.id for task in plan.tasks if task.group_id in new}
    inner |= {group.id for group in plan.groups if group.parent_group_id in new}
    return Plan(plan.tasks, plan.groups, [*plan.edges, *((task_id, node) for node in sorted(new - inner))])


async def _look_up(
    connection: Connection, job_id: int, plan: Plan, names: Mapping[int, str], adder: Adder | None
) -> tuple[Known, set[int]]:
    """States of what the plan refers to and the database has; also which of those groups are closed."""
    new = {task.id for task in plan.tasks} | {group.id for group in plan.groups}
    parents = {task.group_id for task in plan.tasks} | {group.parent_group_id for group in plan.groups}
    wanted = ({previous for previous, _ in plan.edges} | {group for group in parents if group is not None}) - new
    tasks = await connection.fetch(statement("follow"), sorted(wanted), job_id) if wanted else []
    groups = await connection.fetch(statement("known_groups"), sorted(wanted), job_id) if wanted else []
    _refuse_unknown(plan, {row["id"] for row in (*tasks, *groups)}, names)
    for row in (*tasks, *groups):
        if row["staged"] and (adder is None or row["added_by"] != adder.task_id):
            raise SubmitError(
                f"{names.get(row['id'], row['id'])} was added by task {row['added_by']}, which has not completed yet.",
                remedy="Add to it when that task has completed: until then it may be taken back.",
            )
    for row in tasks:
        if row["ended"] and row["status"] != "COMPLETED":
            raise SubmitError(
                f"Task {row['id']} ({row['type']}) is {row['status']}: what waits for it could never run.",
                remedy=f"Retry it first: aaiclick jobs retry {job_id}",
            )
    for row in groups:
        if row["completed"] and row["id"] in parents:
            raise SubmitError(
                f"Group {row['id']} ({row['name']!r}) has completed: nothing can be added to it.",
                remedy="Add to a new group; what waits for the completed one may have begun.",
            )
        if row["failed"] and (row["id"] not in parents or not row["opened"]):
            raise SubmitError(
                f"Group {row['id']} ({row['name']!r}) can no longer complete: what waits for it could never run.",
                remedy=f"Retry what failed first: aaiclick jobs retry {job_id}",
            )
    known = Known(
        {row["id"]: row["status"] == "COMPLETED" for row in tasks},
        {row["id"]: (row["opened"], row["completed"]) for row in groups},
    )
    return known, {row["id"] for row in groups if not row["opened"]}


def _refuse_unknown(plan: Plan, known: Collection[int], names: Mapping[int, str]) -> None:
    new = {task.id for task in plan.tasks} | {group.id for group in plan.groups}
    for previous, following in plan.edges:
        if previous not in new and previous not in known:
            raise SubmitError(
                f"{names.get(following, following)} waits for {names.get(previous, previous)}, "
                "which is not part of this job.",
                remedy="Submit both together, or the other one first.",
            )
        if following not in new:
            raise SubmitError(
                f"{names.get(following, following)} is submitted already and cannot be made to wait for more.",
                remedy="Declare dependencies before submitting what waits.",
            )
    for node in (*plan.tasks, *plan.groups):
        parent = node.group_id if isinstance(node, NewTask) else node.parent_group_id
        if parent is not None and parent not in new and parent not in known:
            raise SubmitError(
                f"{names.get(node.id, node.id)} is in group {names.get(parent, parent)}, "
                "which is not part of this job.",
                remedy="Submit the group with it.",
            )


async def _rest_of_graph(connection: Connection, job_id: int, plan: Plan, known: Known) -> Plan | None:
    """Only something new inside a group of old can close a cycle through what is there already."""
    inside = any(task.group_id in known.groups for task in plan.tasks)
    inside = inside or any(group.parent_group_id in known.groups for group in plan.groups)
    if not inside or not plan.edges:
        return None
    tasks = [
        NewTask(row["id"], "", group_id=row["group_id"])
        for row in await connection.fetch(statement("job_tasks"), job_id)
    ]
    groups = [
        NewGroup(row["id"], row["name"], row["parent_group_id"])
        for row in await connection.fetch(statement("job_groups"), job_id)
    ]
    edges = [(row[0], row[1]) for row in await connection.fetch(statement("job_edges"), job_id)]
    return Plan(tasks, groups, edges)


async def _insert(
    connection: Connection,
    org_id: UUID,
    job_id: int,
    plan: Plan,
    counters: Counters,
    closed: set[int],
    adder: Adder | None,
    now: datetime | None,
) -> None:
    new_groups = {group.id for group in plan.groups}
    closed = closed | (new_groups - counters.opened)
    if plan.groups:
        await _insert_groups(connection, job_id, plan, counters, adder, now)
    records = await _compute(plan, lambda: [record(task, org_id, job_id, counters, closed) for task in plan.tasks])
    if adder is None:
        await connection.copy_records_to_table("tasks", records=records, columns=TASK_COLUMNS)
    else:
        grown = ((*each, adder.task_id, adder.depth + 1) for each in records)
        await connection.copy_records_to_table("tasks", records=grown, columns=(*TASK_COLUMNS, "added_by", "depth"))
        nodes = [task.id for task in plan.tasks], sorted(new_groups)
        first = min((*nodes[0], *nodes[1]))
        await connection.execute(statement("record_addition"), adder.task_id, adder.attempt, first, *nodes)
    if plan.edges:
        edges = (
            (a, b, "task" if a in counters.followed else "group", "group" if b in new_groups else "task")
            for a, b in sorted(set(plan.edges))
        )
        await connection.copy_records_to_table(
            "dependencies", records=edges, columns=("previous_id", "next_id", "previous_type", "next_type")
        )
    ready = {record[4] for record in records if record[11] == "READY"}
    ready |= await admit(connection, ((org_id, record[17]) for record in records if record[11] == "HELD"))
    await notify_ready(connection, ready)


async def _insert_groups(
    connection: Connection, job_id: int, plan: Plan, counters: Counters, adder: Adder | None, now: datetime | None
) -> None:
    moment = await clock(connection, now)
    rows = [
        (group.id, job_id, group.parent_group_id, group.name, counters.unmet[group.id], counters.open[group.id],
         moment if group.id in counters.completed else None, adder.task_id if adder is not None else None)
        for group in plan.groups
    ]  # fmt: skip
    columns = ("id", "job_id", "parent_group_id", "name", "unmet", "open", "completed_at", "added_by")
    await connection.copy_records_to_table("groups", records=rows, columns=columns)


def record(task: NewTask, org_id: UUID, job_id: int | None, counters: Counters, closed: set[int]) -> tuple[Any, ...]:
    """The row of a new task, in the order of TASK_COLUMNS."""
    unmet = counters.unmet[task.id] if counters.unmet else 0
    if unmet or task.group_id in closed:
        readiness = "BLOCKED"
    elif task.available_at is not None:
        readiness = "TIME"
    else:
        readiness = "READY" if task.concurrency_key is None else "HELD"
    return (
        task.id, org_id, job_id, task.group_id, task.queue, task.type, task.entrypoint, task.kwargs, task.priority,
        unmet, task.id in counters.followed, readiness, task.available_at, task.max_attempts, task.timeout_seconds,
        task.retry_policy, task.idempotency_key, task.concurrency_key, task.concurrency_limit,
        task.critical,
    )  # fmt: skip
