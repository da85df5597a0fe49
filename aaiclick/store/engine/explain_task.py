"""Explain why a task has not ended: all reasons as text, most important first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.errors import NotFoundError
from aaiclick.settings import get_settings
from aaiclick.store.enums import DISPATCHER_QUEUE, RUNTIME_QUEUE, VERSION_QUEUE
from aaiclick.store.statements import statement
from aaiclick.store.typed_rows import fetch_row

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_DEPENDENCIES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that a task waits for; `code` is for programs, `text` for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """Row of the statement `explain_task`: a task, its queue, org, job, group, worker and dispatch."""

    id: int
    job_id: int | None
    group_id: int | None
    queue: str
    type: str
    status: str
    readiness: str | None
    available_at: datetime | None
    attempt: int
    failures: int
    max_attempts: int
    worker_id: int | None
    lease_expires_at: datetime | None
    cancel_requested_at: datetime | None
    cause_id: int | None
    concurrency_key: str | None
    slots: int
    rate: str | None
    rate_key: str
    rate_next_at: datetime | None
    wait_type: str | None
    wait_name: str | None
    wait_key: str | None
    wait_job_id: int | None
    now: datetime
    cause_type: str | None
    cause_status: str | None
    job_paused_at: datetime | None
    org_paused_at: datetime | None
    org_max: int | None
    org_rate: float | None
    org_name: str | None
    queue_paused_at: datetime | None
    queue_max: int | None
    queue_rate: float | None
    org_tokens: float | None
    queue_tokens: float | None
    type_paused_at: datetime | None
    org_running: int
    queue_running: int
    worker_last_heartbeat: datetime | None
    holder_last_heartbeat: datetime | None
    dispatch_count: int | None
    dispatched_at: datetime | None
    dispatch_error: str | None
    key_holders: list[int] | None
    ahead: int


async def explain_task(connection: Connection, task_id: int) -> list[Reason]:
    """All reasons why a task has not ended. Never empty: for an ended task it says how it ended."""
    facts = await fetch_row(connection, TaskFacts, statement("explain_task"), task_id)
    if facts is None:
        raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls' lists the tasks of a job.")
    if facts.readiness == "BLOCKED":
        return await _explain_blocked(connection, facts)
    return explain_facts(facts)


async def _explain_blocked(connection: Connection, facts: TaskFacts) -> list[Reason]:
    groups = []
    if facts.group_id is not None:
        groups = [g for g in await connection.fetch(statement("list_enclosing_groups"), facts.group_id) if g["unmet"]]
    names = {group["id"]: group["name"] for group in groups}
    rows = await connection.fetch(statement("list_unmet_dependencies"), [facts.id, *names], MAX_DEPENDENCIES_SHOWN)
    reasons: list[Reason] = []
    for row in rows:
        prefix = "" if row["next_id"] == facts.id else f"its group {names[row['next_id']]!r} waits for "
        reasons.append(
            Reason("dependency", f"{prefix or 'waits for '}{row['kind']} {row['name']!r} ({row['id']}): {row['state']}")
        )
    return reasons or [Reason("blocked", "its predecessors have just completed: its counters are being updated")]


def explain_facts(facts: TaskFacts) -> list[Reason]:
    """Reasons of a task that is not blocked, from the row of the statement `explain_task`."""
    match facts.readiness, facts.status:
        case None, "CLAIMED" | "RUNNING":
            return _explain_leased(facts)
        case None, status:
            return [_explain_ended(status, facts)]
        case "TIME", "FAILED":
            failures, max_attempts = facts.failures, facts.max_attempts
            return [
                Reason(
                    "retry",
                    f"failed ({failures} of {max_attempts} attempts) and is retried {_format_available_at(facts)}",
                ),
                *_explain_due(facts),
            ]
        case "TIME", _ if facts.wait_type is not None:
            return [_explain_wait(facts), *_explain_due(facts)]
        case "TIME", _:
            return [Reason("scheduled", f"starts {_format_available_at(facts)}"), *_explain_due(facts)]
        case "HELD", _:
            return _explain_pauses(facts) or [
                _explain_rate(facts, facts.rate)
                if facts.rate is not None and facts.concurrency_key is None
                else _explain_no_slot(facts)
            ]
        case _:
            return [*_explain_pauses(facts), *_explain_limits(facts), *_explain_workers(facts)] or [
                _explain_queued(facts)
            ]


def _explain_wait(facts: TaskFacts) -> Reason:
    at = facts.available_at or facts.now
    until = at.isoformat(timespec="seconds")
    match facts.wait_type:
        case "event":
            event = facts.wait_name if not facts.wait_key else f"{facts.wait_name}/{facts.wait_key}"
            return Reason("event", f"waits for event {event} until {until}")
        case "job":
            return Reason("job", f"waits for job {facts.wait_job_id} until {until}")
        case "approval":
            return Reason("approval", f"waits for {facts.wait_key} to decide: {facts.wait_name}, until {until}")
        case "poll":
            return Reason("poll", f"polls again at {until}")
        case _:
            return Reason("sleep", f"waits until {until}")


def _explain_leased(facts: TaskFacts) -> list[Reason]:
    if facts.lease_expires_at is None or facts.lease_expires_at <= facts.now:
        lost = f"worker {facts.worker_id} lost its lease: the reaper will recover the task"
        return [Reason("lease_expired", lost), *_explain_missing_worker(facts)]
    verb = "is being cancelled on" if facts.cancel_requested_at else "runs on"
    at_work = Reason("running", f"{verb} worker {facts.worker_id}, attempt {facts.attempt}")
    return [at_work, *_explain_silent_worker(facts, facts.lease_expires_at)]


def _explain_silent_worker(facts: TaskFacts, expires_at: datetime) -> list[Reason]:
    """Warn if the worker has missed more than two heartbeats."""
    if facts.holder_last_heartbeat is None:
        return []
    silent = (facts.now - facts.holder_last_heartbeat).total_seconds()
    if silent <= 2 * get_settings().worker_heartbeat_interval_seconds:
        return []
    left = (expires_at - facts.now).total_seconds()
    outcome = "is retried" if facts.failures + 1 < facts.max_attempts else "has failed too often"
    if facts.cancel_requested_at:
        outcome = "is cancelled"
    text = f"its worker has sent no heartbeat for {silent:.0f} s; without one the lease expires in {left:.0f} s"
    return [Reason("silent", f"{text} and the task {outcome}")]


def _explain_due(facts: TaskFacts) -> list[Reason]:
    """Due tasks are promoted by workers: warn if there is none."""
    return _explain_missing_worker(facts) if (facts.available_at or facts.now) <= facts.now else []


def _explain_ended(status: str, facts: TaskFacts) -> Reason:
    if facts.cause_id is not None:
        cause = f"task {facts.cause_type!r} ({facts.cause_id}) is {facts.cause_status}"
        return Reason("cancelled", f"cancelled because {cause}; retrying that one restarts this one")
    if status == "DEAD_LETTER":
        return Reason("dead_letter", f"failed {facts.failures} times and waits to be redriven")
    if status == "SKIPPED":
        return Reason("skipped", "a branch chose other tasks, or it handles failures and there was none")
    return Reason(status.lower(), f"has ended: {status}")


def _format_available_at(facts: TaskFacts) -> str:
    at = facts.available_at or facts.now
    seconds = (at - facts.now).total_seconds()
    return f"at {at.isoformat(timespec='seconds')}" + (f", in {seconds:.0f} s" if seconds > 0 else ", which is now")


def _explain_pauses(facts: TaskFacts) -> list[Reason]:
    pauses = (
        (f"org {facts.org_name!r}", facts.org_paused_at),
        (f"queue {facts.queue!r}", facts.queue_paused_at),
        (f"type {facts.type!r}", facts.type_paused_at),
        (f"job {facts.job_id}", facts.job_paused_at),
    )
    return [
        Reason("paused", f"{label} is paused since {paused_at.isoformat(timespec='seconds')}")
        for label, paused_at in pauses
        if paused_at is not None
    ]


def _explain_limits(facts: TaskFacts) -> list[Reason]:
    org = (facts.org_max, facts.org_running, facts.org_rate, facts.org_tokens)
    queue = (facts.queue_max, facts.queue_running, facts.queue_rate, facts.queue_tokens)
    reasons: list[Reason] = []
    for label, limits in ((f"org {facts.org_name!r}", org), (f"queue {facts.queue!r}", queue)):
        max_running, running, rate, tokens = limits
        if max_running is not None and running >= max_running:
            reasons.append(Reason("limited", f"{label} runs {running} tasks, its limit"))
        if rate is not None and tokens is not None and tokens < 1:
            reasons.append(Reason("rate", f"{label} may start {rate:g} tasks a second"))
    return reasons


def _explain_workers(facts: TaskFacts) -> list[Reason]:
    queue = facts.queue
    if queue.startswith(VERSION_QUEUE):
        return _explain_version(facts, queue.split(":")[2])
    if _is_runtime_queue(queue):
        return [_explain_runtime(facts, queue.removeprefix(RUNTIME_QUEUE))]
    return _explain_missing_worker(facts)


def _explain_version(facts: TaskFacts, version: str) -> list[Reason]:
    """Only workers with the version of a pinned job run its tasks."""
    last_heartbeat = facts.worker_last_heartbeat
    if last_heartbeat is not None:
        silent = (facts.now - last_heartbeat).total_seconds()
        if silent < get_settings().worker_timeout_seconds:
            return []
    text = f"its job is pinned to code version {version}, and no worker with that version is running"
    return [Reason("code_version", f"{text}: start one with 'aaiclick worker start --code-version {version}'")]


def _is_runtime_queue(queue: str) -> bool:
    return queue.startswith(RUNTIME_QUEUE) and queue != DISPATCHER_QUEUE


def _explain_missing_worker(facts: TaskFacts) -> list[Reason]:
    queue, last_heartbeat = facts.queue, facts.worker_last_heartbeat
    if _is_runtime_queue(queue):
        return []
    if last_heartbeat is None:
        needs_local_worker = queue == DISPATCHER_QUEUE
        problem = (
            "no worker with a database connection is running"
            if needs_local_worker
            else f"no worker serves queue {queue!r}"
        )
        return [Reason("no_worker", f"{problem}: start one with 'aaiclick worker start'")]
    silent = (facts.now - last_heartbeat).total_seconds()
    if silent < get_settings().worker_timeout_seconds:
        return []
    text = f"no worker of queue {queue!r} has sent a heartbeat for {silent:.0f} s: start one with"
    return [Reason("no_worker", f"{text} 'aaiclick worker start'")]


def _explain_runtime(facts: TaskFacts, name: str) -> Reason:
    """A task of an external runtime waits to be dispatched, or to be claimed by the runtime."""
    text = f"waits for the runtime {name!r}"
    if facts.dispatch_count is None or facts.dispatched_at is None:
        return Reason("runtime", f"{text}; not dispatched yet: start a worker with AAICLICK_RUNTIMES={name}=…")
    when = facts.dispatched_at.isoformat(timespec="seconds")
    if facts.dispatch_error is not None:
        return Reason("runtime", f"{text}; the dispatch at {when} failed: {facts.dispatch_error}")
    times = "once" if facts.dispatch_count == 1 else f"{facts.dispatch_count} times"
    start_hint = "" if name == "lambda" else f": start 'aaiclick worker start --runtime {name}' where it runs"
    worker_hint = "" if facts.worker_last_heartbeat is not None else f"; it has no worker{start_hint}"
    return Reason("runtime", f"{text}; dispatched {times}, last at {when}{worker_hint}")


def _explain_no_slot(facts: TaskFacts) -> Reason:
    holders = ", ".join(str(holder) for holder in facts.key_holders or ())
    slots = "the slot" if facts.slots == 1 else f"all {facts.slots} slots"
    return Reason("concurrency", f"{slots} of key {facts.concurrency_key!r} taken by {holders or 'others'}")


def _explain_rate(facts: TaskFacts, rate: str) -> Reason:
    count, _, seconds = rate.partition("/")
    next_at = facts.rate_next_at or facts.now
    return Reason(
        "rate",
        f"{count} tasks of rate key {facts.rate_key!r} were claimed within {seconds} s, its rate; the next ones start "
        f"at {next_at.isoformat(timespec='seconds')}",
    )


def _explain_queued(facts: TaskFacts) -> Reason:
    ahead = facts.ahead
    count = "10000 or more" if ahead >= 10_000 else str(ahead)
    return Reason("ready", f"ready; {count} tasks of queue {facts.queue!r} come first")
