"""Submit jobs and add nodes to them: in one transaction, in bulk by COPY."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import LeaseLost, LimitError, NotFoundError, SubmitError
from aaiclick.store.clock import read_clock
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.job_concurrency import add_turn, admit_job
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.engine.new_jobs import NewJob, insert_job
from aaiclick.store.engine.propagate import update_jobs
from aaiclick.store.engine.submission_plan import (
    Counters,
    ExistingNodes,
    NewGroup,
    NewTask,
    Plan,
    check_acyclic,
    compute_counters,
    expand_handler_edges,
    list_handlers,
    pin_plan,
    pinned_version,
)
from aaiclick.store.statements import statement
from aaiclick.store.tables.table_references import hold_arguments
from aaiclick.store.task_options import DEFAULT_OPTIONS, OPTION_COLUMNS

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

P = ParamSpec("P")
T = TypeVar("T")

SMALL_PLAN = 500
"""Tasks and edges of a plan that is checked on the event loop."""

TASK_COLUMNS = (
    "id", "org_id", "job_id", "group_id", "type", "entrypoint", "kwargs", "idempotency_key", "unmet", "has_dependents",
    "readiness", *OPTION_COLUMNS,
)  # fmt: skip
_READINESS = TASK_COLUMNS.index("readiness")
_DEFAULT_COLUMNS = TASK_COLUMNS[: TASK_COLUMNS.index("max_attempts") + 1]
"""Columns of tasks with default options; `max_attempts` is a setting, the others have defaults in PostgreSQL."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Maximum number of tasks of a job, and maximum nesting of dynamic tasks."""

    max_tasks: int = 5_000_000
    max_depth: int = 1_000

    def check(self, job: str, tasks: int, depth: int = 0) -> None:
        if tasks > self.max_tasks:
            raise LimitError(
                f"{job} would have {tasks} tasks; a job may have {self.max_tasks}.",
                remedy="If the job is meant to be that large, raise AAICLICK_JOB_MAX_TASKS.",
            )
        if depth > self.max_depth:
            raise LimitError(
                f"{job} has tasks added by tasks, {depth - 1} levels deep; {self.max_depth} are allowed.",
                remedy="If the job is meant to be that deep, raise AAICLICK_JOB_MAX_DEPTH.",
            )


async def submit_job(
    connection: Connection,
    job: NewJob,
    plan: Plan,
    names: Mapping[int, str] | None = None,
    *,
    limits: JobLimits | None = None,
    now: datetime | None = None,
    is_admitted: bool = False,
) -> int:
    """Insert a job with `plan`; returns its id, or that of the existing job with its idempotency key.

    A limited job may wait for another one, replace it, or not be inserted (see `job_concurrency`).
    """
    if job.pinned_version is not None and not is_admitted:
        pin_plan(plan, job.pinned_version)
    if job.policy.concurrency is not None and not is_admitted:
        async with failpoints.transaction(connection, "submit_limited"):
            admission = await admit_job(connection, job)
            if admission.existing_id is not None:
                return admission.existing_id
            if admission.awaited_id is not None:
                plan = add_turn(plan, admission.awaited_id)
            return await submit_job(connection, job, plan, names, limits=limits, now=now, is_admitted=True)
    (limits or JobLimits()).check(f"Job {job.name!r}", len(plan.tasks))
    plan = expand_handler_edges(plan, names or {})
    counters = await _run_off_loop(plan, _check_new_plan, plan, names or {})
    async with failpoints.transaction(connection, "submit"):
        if (existing_id := await insert_job(connection, job, len(plan.tasks))) is not None:
            return existing_id
        await _insert_plan(connection, job.org_id, job.id, plan, counters, set(), None, now)
        await hold_arguments(connection, job.id, plan.tables, plan.session_tables, names or {}, job.org_id)
        if not plan.tasks:
            await update_jobs(connection, completed=Counter({job.id: 0}), now=now)
    return job.id


def _check_new_plan(plan: Plan, names: Mapping[int, str]) -> Counters:
    check_acyclic(plan, names)
    _refuse_unknown_nodes(plan, set(), names)
    return compute_counters(plan, ExistingNodes())


async def _run_off_loop(plan: Plan, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a CPU-bound function of a plan: in a thread, unless the plan is small."""
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
    limits: JobLimits | None = None,
    counts: AddedCounts | None = None,
    now: datetime | None = None,
) -> None:
    """Add nodes to a job that has not ended.

    With `lease`, only while that is valid, and the new nodes depend on its task (see `dynamic_tasks`). A job
    that exceeds a limit by its own tasks is cancelled. With `counts`, the caller writes the counters of existing rows.
    """
    try:
        async with failpoints.transaction(connection, "add"):
            await connection.execute(statement("lock_job"), job_id)
            adder = await _lock_adding_attempt(connection, job_id, lease)
            if adder is not None and (version := pinned_version(adder.queue)) is not None:
                pin_plan(plan, version)
            await _add_plan(connection, job_id, plan, names or {}, adder, limits or JobLimits(), counts, now)
    except LimitError as error:
        if lease is not None:
            await cancel_job(connection, job_id, error=str(error), now=now)
        raise


async def _add_plan(
    connection: Connection,
    job_id: int,
    plan: Plan,
    names: Mapping[int, str],
    adder: AddingAttempt | None,
    limits: JobLimits,
    counts: AddedCounts | None,
    now: datetime | None,
) -> None:
    head = await connection.fetchrow(statement("get_job_head"), job_id)
    if head is None:
        raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
    job = f"Job {job_id} ({head['name']!r})"
    plan = expand_handler_edges(plan, names)
    gated = plan if adder is None else _gate_on_task(plan, adder.task_id)
    existing, closed = await _load_existing_nodes(connection, job_id, gated, names, adder)
    # The adding task is running: nothing that depends on it can precede it.
    await _run_off_loop(plan, check_acyclic, plan, names, await _load_rest_of_graph(connection, job_id, plan, existing))
    counters = await _run_off_loop(plan, compute_counters, gated, existing)
    await _insert_plan(connection, head["org_id"], job_id, gated, counters, closed, adder, now)
    await hold_arguments(connection, job_id, plan.tables, plan.session_tables, names, head["org_id"])
    if adder is not None:
        new_ids = [task.id for task in plan.tasks]
        await connection.execute(statement("add_handler_predecessors"), adder.task_id, new_ids)
    added = AddedCounts() if counts is None else counts
    added.tasks += len(plan.tasks)
    added.group_members.update({group: count for group in existing.groups if (count := counters.open[group])})
    if counts is None:
        total = await write_added_counts(connection, job_id, added, by_handler=adder is not None and adder.is_handler)
        if total is None:
            state = "being cancelled" if head["cancelled"] else "finished"
            raise SubmitError(
                f"{job} is {state}: tasks cannot be added to it.",
                remedy="Submit a new job, or add tasks from a task of the job while it runs.",
            )
    else:
        total = added.tasks
    limits.check(job, total, adder.depth + 1 if adder is not None else 0)


@dataclass(slots=True)
class AddedCounts:
    """Added tasks and group members that the rows of the job and of its groups do not count yet."""

    tasks: int = 0
    group_members: Counter[int] = field(default_factory=Counter[int])


async def write_added_counts(
    connection: Connection, job_id: int, added: AddedCounts, *, by_handler: bool = False
) -> int | None:
    """Count added nodes in the rows of their job and groups; returns the job's tasks, None if it takes no more."""
    if added.group_members:
        members = added.group_members
        await connection.execute(statement("add_group_members"), list(members), list(members.values()))
    return await connection.fetchval(statement("add_job_tasks"), job_id, added.tasks, by_handler)


@dataclass(frozen=True, slots=True)
class AddingAttempt:
    """The attempt that adds tasks."""

    task_id: int
    attempt: int
    depth: int
    is_handler: bool
    queue: str


async def _lock_adding_attempt(connection: Connection, job_id: int, lease: Lease | None) -> AddingAttempt | None:
    if lease is None:
        return None
    row = await connection.fetchrow(statement("lock_lease"), lease.task_id, lease.attempt, lease.token)
    if row is None or row["job_id"] != job_id:
        raise LeaseLost(
            f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease; nothing was added to job {job_id}.",
            remedy="Stop: another attempt runs or has finished.",
        )
    return AddingAttempt(lease.task_id, lease.attempt, row["depth"], row["is_handler"], row["queue"])


def _gate_on_task(plan: Plan, task_id: int) -> Plan:
    """The plan with edges from the task to its first nodes, so that all of it depends on the task."""
    new = {task.id for task in plan.tasks} | {group.id for group in plan.groups}
    inner = {following for previous, following in plan.edges if previous in new}
    inner |= {task.id for task in plan.tasks if task.group_id in new}
    inner |= {group.id for group in plan.groups if group.parent_group_id in new}
    return Plan(plan.tasks, plan.groups, [*plan.edges, *((task_id, node) for node in sorted(new - inner))])


async def _load_existing_nodes(
    connection: Connection, job_id: int, plan: Plan, names: Mapping[int, str], adder: AddingAttempt | None
) -> tuple[ExistingNodes, set[int]]:
    """States of the existing nodes that the plan refers to, and which of those groups are closed."""
    new = {task.id for task in plan.tasks} | {group.id for group in plan.groups}
    parents = {task.group_id for task in plan.tasks} | {group.parent_group_id for group in plan.groups}
    node_ids = ({previous for previous, _ in plan.edges} | {group for group in parents if group is not None}) - new
    tasks = await connection.fetch(statement("mark_has_dependents"), sorted(node_ids), job_id) if node_ids else []
    groups = await connection.fetch(statement("load_groups"), sorted(node_ids), job_id) if node_ids else []
    _refuse_unknown_nodes(plan, {row["id"] for row in (*tasks, *groups)}, names)
    for row in (*tasks, *groups):
        if row["staged"] and (adder is None or row["added_by"] != adder.task_id):
            raise SubmitError(
                f"{names.get(row['id'], row['id'])} was added by task {row['added_by']}, which has not completed yet.",
                remedy="Add to it when that task has completed: until then it may be discarded.",
            )
    for row in tasks:
        if row["ended"] and row["status"] != "COMPLETED":
            raise SubmitError(
                f"Task {row['id']} ({row['type']}) is {row['status']}: its dependents could never run.",
                remedy=f"Retry it first: aaiclick jobs retry {job_id}",
            )
    ended = {row["id"] for row in groups} | {row["id"] for row in tasks if row["ended"]}
    handlers = list_handlers(plan)
    for previous, following in plan.edges:
        if following in handlers and previous in ended:
            raise SubmitError(
                f"{names.get(following, following)} runs after the end of {names.get(previous, previous)}, "
                "which is a submitted group or has ended.",
                remedy="Submit it together with the tasks that it depends on.",
            )
    for row in groups:
        if row["skipped"]:
            raise SubmitError(
                f"Group {row['id']} ({row['name']!r}) was skipped: its dependents and members never run.",
                remedy="Clear the task that chose the branch.",
            )
        if row["completed"] and row["id"] in parents:
            raise SubmitError(
                f"Group {row['id']} ({row['name']!r}) has completed: tasks cannot be added to it.",
                remedy="Add to a new group: dependents of the completed one may have begun.",
            )
        if row["failed"] and (row["id"] not in parents or not row["opened"]):
            raise SubmitError(
                f"Group {row['id']} ({row['name']!r}) can no longer complete: its dependents could never run.",
                remedy=f"Retry its failed tasks first: aaiclick jobs retry {job_id}",
            )
    existing = ExistingNodes(
        {row["id"]: row["status"] == "COMPLETED" for row in tasks},
        {row["id"]: (row["opened"], row["completed"]) for row in groups},
    )
    return existing, {row["id"] for row in groups if not row["opened"]}


def _refuse_unknown_nodes(plan: Plan, existing_ids: Collection[int], names: Mapping[int, str]) -> None:
    new = {task.id for task in plan.tasks} | {group.id for group in plan.groups}
    for previous, following in plan.edges:
        if previous not in new and previous not in existing_ids:
            raise SubmitError(
                f"{names.get(following, following)} waits for {names.get(previous, previous)}, "
                "which is not part of this job.",
                remedy="Submit both together, or the predecessor first.",
            )
        if following not in new:
            raise SubmitError(
                f"{names.get(following, following)} is submitted already and cannot get more dependencies.",
                remedy="Declare dependencies before submitting the dependent task.",
            )
    for node in (*plan.tasks, *plan.groups):
        parent = node.group_id if isinstance(node, NewTask) else node.parent_group_id
        if parent is not None and parent not in new and parent not in existing_ids:
            raise SubmitError(
                f"{names.get(node.id, node.id)} is in group {names.get(parent, parent)}, "
                "which is not part of this job.",
                remedy="Submit the group with it.",
            )


async def _load_rest_of_graph(connection: Connection, job_id: int, plan: Plan, existing: ExistingNodes) -> Plan | None:
    """The existing graph of the job; None if the plan adds no node to an existing group and so cannot close a cycle."""
    inside = any(task.group_id in existing.groups for task in plan.tasks)
    inside = inside or any(group.parent_group_id in existing.groups for group in plan.groups)
    if not inside or not plan.edges:
        return None
    tasks = [
        NewTask(row["id"], "", group_id=row["group_id"])
        for row in await connection.fetch(statement("list_job_nodes"), job_id)
    ]
    groups = [
        NewGroup(row["id"], row["name"], row["parent_group_id"])
        for row in await connection.fetch(statement("list_job_groups"), job_id)
    ]
    edges = [(row[0], row[1]) for row in await connection.fetch(statement("list_job_edges"), job_id)]
    return Plan(tasks, groups, edges)


async def _insert_plan(
    connection: Connection,
    org_id: UUID,
    job_id: int,
    plan: Plan,
    counters: Counters,
    closed: set[int],
    adder: AddingAttempt | None,
    now: datetime | None,
) -> None:
    new_groups = {group.id for group in plan.groups}
    closed = closed | (new_groups - counters.opened)
    if plan.groups:
        await _insert_groups(connection, job_id, plan, counters, adder, now)
    tasks = plan.tasks
    columns, records = await _run_off_loop(plan, make_records, tasks, org_id, job_id, counters, closed)
    if adder is None:
        await connection.copy_records_to_table("tasks", records=records, columns=columns)
    else:
        grown = ((*row, adder.task_id, adder.depth + 1) for row in records)
        await connection.copy_records_to_table("tasks", records=grown, columns=(*columns, "added_by", "depth"))
        nodes = [task.id for task in plan.tasks], sorted(new_groups)
        first = min((*nodes[0], *nodes[1]))
        await connection.execute(statement("insert_addition"), adder.task_id, adder.attempt, first, *nodes)
    if plan.edges:
        next_types = {**dict.fromkeys(new_groups, "group"), **dict.fromkeys(list_handlers(plan), "handler")}
        edges = (
            (a, b, "task" if a in counters.with_dependents else "group", next_types.get(b, "task"))
            for a, b in sorted(set(plan.edges))
        )
        await connection.copy_records_to_table(
            "dependencies", records=edges, columns=("previous_id", "next_id", "previous_type", "next_type")
        )
    options = [(task.options, record[_READINESS]) for task, record in zip(tasks, records, strict=True)]
    ready = {option.queue for option, readiness in options if readiness == "READY"}
    held = ((org_id, option.concurrency_key) for option, readiness in options if readiness == "HELD")
    ready |= await admit_held_tasks(connection, held)
    await notify_ready(connection, ready)


async def _insert_groups(
    connection: Connection,
    job_id: int,
    plan: Plan,
    counters: Counters,
    adder: AddingAttempt | None,
    now: datetime | None,
) -> None:
    moment = await read_clock(connection, now)
    rows = [
        (group.id, job_id, group.parent_group_id, group.name, counters.unmet[group.id], counters.open[group.id],
         moment if group.id in counters.completed else None, adder.task_id if adder is not None else None)
        for group in plan.groups
    ]  # fmt: skip
    columns = ("id", "job_id", "parent_group_id", "name", "unmet", "open", "completed_at", "added_by")
    await connection.copy_records_to_table("groups", records=rows, columns=columns)


def make_records(
    tasks: Sequence[NewTask], org_id: UUID, job_id: int | None, counters: Counters, closed: Collection[int] = ()
) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    """Columns and rows of new tasks, without options that all tasks leave at their defaults: COPY is a tenth faster."""
    options, option_values = DEFAULT_OPTIONS, DEFAULT_OPTIONS.values()
    columns = TASK_COLUMNS
    if all(task.options is DEFAULT_OPTIONS for task in tasks):
        columns, option_values = _DEFAULT_COLUMNS, option_values[:1]
    unmet_by_id, with_dependents = counters.unmet, counters.with_dependents
    records: list[tuple[object, ...]] = []
    for task in tasks:
        if task.options is not options:  # mostly the tasks of one function follow each other and share them
            options, option_values = task.options, task.options.values()
        unmet = unmet_by_id[task.id] if unmet_by_id else 0
        if unmet or task.group_id in closed:
            readiness = "BLOCKED"
        elif options.run_at is not None:
            readiness = "TIME"
        else:
            readiness = "READY" if options.concurrency_key is None else "HELD"
        records.append((
            task.id, org_id, job_id, task.group_id, task.type, task.entrypoint, task.kwargs, task.idempotency_key,
            unmet, task.id in with_dependents, readiness, *option_values,
        ))  # fmt: skip
    return columns, records
