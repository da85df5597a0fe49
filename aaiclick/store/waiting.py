"""Why is this waiting? One answer for any task, in words, most important first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from aaiclick.errors import NotFoundError
from aaiclick.settings import get_settings
from aaiclick.store.statements import statement
from aaiclick.store.words import DISPATCHER_QUEUE, RUNTIME_QUEUE

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that a task waits for; `code` is for programs, `words` for people."""

    code: str
    words: str


async def why_waiting(connection: Connection, task_id: int) -> list[Reason]:
    """Everything that stands between a task and its end. Never empty: a task that is over says how it ended."""
    row = await connection.fetchrow(statement("why"), task_id)
    if row is None:
        raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls' lists the tasks of a job.")
    facts = dict(row)
    if facts["readiness"] == "BLOCKED":
        return await _blocked(connection, facts)
    return explain(facts)


async def _blocked(connection: Connection, facts: dict[str, Any]) -> list[Reason]:
    groups = []
    if facts["group_id"] is not None:
        groups = [g for g in await connection.fetch(statement("groups_around"), facts["group_id"]) if g["unmet"]]
    names = {group["id"]: group["name"] for group in groups}
    rows = await connection.fetch(statement("why_unmet"), [facts["id"], *names], SHOWN)
    reasons: list[Reason] = []
    for row in rows:
        who = "" if row["next_id"] == facts["id"] else f"its group {names[row['next_id']]!r} waits for "
        reasons.append(
            Reason("dependency", f"{who or 'waits for '}{row['kind']} {row['name']!r} ({row['id']}): {row['state']}")
        )
    return reasons or [
        Reason("blocked", "waits for what was just completed: its counters are being brought up to date")
    ]


def explain(facts: dict[str, Any]) -> list[Reason]:
    """The reasons of a task that is not blocked, out of what `why.sql` says: a pure function."""
    match facts["readiness"], facts["status"]:
        case None, "CLAIMED" | "RUNNING":
            return _at_work(facts)
        case None, status:
            return [_ended(status, facts)]
        case "TIME", "FAILED":
            n, most = facts["failures"], facts["max_attempts"]
            return [Reason("retry", f"failed ({n} of {most} attempts) and is tried again {_when(facts)}"), *_due(facts)]
        case "TIME", _:
            return [Reason("scheduled", f"starts {_when(facts)}"), *_due(facts)]
        case "HELD", _:
            return _pauses(facts) or [_no_slot(facts)]
        case _:
            return [*_pauses(facts), *_limits(facts), *_workers(facts)] or [_in_line(facts)]


def _at_work(facts: dict[str, Any]) -> list[Reason]:
    if facts["lease_expires_at"] <= facts["now"]:
        lost = f"worker {facts['worker_id']} lost its lease: the reaper will take it back"
        return [Reason("lease_expired", lost), *_no_worker(facts)]
    verb = "is being cancelled on" if facts["cancel_requested_at"] else "runs on"
    at_work = Reason("running", f"{verb} worker {facts['worker_id']}, attempt {facts['attempt']}")
    return [at_work, *_silence(facts)]


def _silence(facts: dict[str, Any]) -> list[Reason]:
    """Whether the worker at work may be gone: nothing has been heard of it for more than two heartbeats."""
    if facts["holder_heard_at"] is None:
        return []
    silent = (facts["now"] - facts["holder_heard_at"]).total_seconds()
    if silent <= 2 * get_settings().worker_heartbeat_interval_seconds:
        return []
    left = (facts["lease_expires_at"] - facts["now"]).total_seconds()
    fate = "is tried again" if facts["failures"] + 1 < facts["max_attempts"] else "has failed too often"
    if facts["cancel_requested_at"]:
        fate = "is cancelled"
    words = f"its worker has been silent for {silent:.0f} s; unless it is heard of, the lease runs out in {left:.0f} s"
    return [Reason("silent", f"{words} and the task {fate}")]


def _due(facts: dict[str, Any]) -> list[Reason]:
    """What is due is made ready by workers: without any it stays as it is."""
    return _no_worker(facts) if facts["available_at"] <= facts["now"] else []


def _ended(status: str, facts: dict[str, Any]) -> Reason:
    if facts["cause_id"] is not None:
        cause = f"task {facts['cause_type']!r} ({facts['cause_id']}) is {facts['cause_status']}"
        return Reason("cancelled", f"cancelled because {cause}; retrying that one brings this back")
    if status == "DEAD_LETTER":
        return Reason("dead_letter", f"failed {facts['failures']} times and waits to be redriven")
    return Reason(status.lower(), f"over: {status}")


def _when(facts: dict[str, Any]) -> str:
    at: datetime = facts["available_at"]
    seconds = (at - facts["now"]).total_seconds()
    return f"at {at.isoformat(timespec='seconds')}" + (f", in {seconds:.0f} s" if seconds > 0 else ", which is now")


def _pauses(facts: dict[str, Any]) -> list[Reason]:
    things = {
        "org": f"org {facts['org_name']!r}", "queue": f"queue {facts['queue']!r}",
        "type": f"type {facts['type']!r}", "job": f"job {facts['job_id']}",
    }  # fmt: skip
    return [
        Reason("paused", f"{words} is paused since {facts[f'{name}_paused_at'].isoformat(timespec='seconds')}")
        for name, words in things.items()
        if facts[f"{name}_paused_at"] is not None
    ]


def _limits(facts: dict[str, Any]) -> list[Reason]:
    reasons: list[Reason] = []
    for name, words in (("org", f"org {facts['org_name']!r}"), ("queue", f"queue {facts['queue']!r}")):
        most, running, rate = facts[f"{name}_max"], facts[f"{name}_running"], facts[f"{name}_rate"]
        if most is not None and running >= most:
            reasons.append(Reason("limited", f"{words} runs {running} tasks, the most it may"))
        if rate is not None and facts[f"{name}_tokens"] < 1:
            reasons.append(Reason("rate", f"{words} may start {rate:g} tasks a second"))
    return reasons


def _workers(facts: dict[str, Any]) -> list[Reason]:
    queue = facts["queue"]
    if _elsewhere(queue):
        return [_runtime(facts, queue.removeprefix(RUNTIME_QUEUE))]
    return _no_worker(facts)


def _elsewhere(queue: str) -> bool:
    return queue.startswith(RUNTIME_QUEUE) and queue != DISPATCHER_QUEUE


def _no_worker(facts: dict[str, Any]) -> list[Reason]:
    queue, heard_at = facts["queue"], facts["worker_heard_at"]
    if _elsewhere(queue):
        return []
    if heard_at is None:
        near = queue == DISPATCHER_QUEUE
        what = "no worker beside the databases is there" if near else f"no worker serves queue {queue!r}"
        return [Reason("no_worker", f"{what}: start one with 'aaiclick worker start'")]
    silent = (facts["now"] - heard_at).total_seconds()
    if silent < get_settings().worker_timeout_seconds:
        return []
    words = f"no worker of queue {queue!r} has been heard of for {silent:.0f} s: start one with"
    return [Reason("no_worker", f"{words} 'aaiclick worker start'")]


def _runtime(facts: dict[str, Any], name: str) -> Reason:
    """What a task of a runtime elsewhere waits for: to be told to it, or to be taken by it."""
    what = f"waits for the runtime {name!r}"
    if facts["told"] is None:
        return Reason("runtime", f"{what}, which was not told yet: a worker with AAICLICK_RUNTIMES={name}=… does that")
    when = facts["told_at"].isoformat(timespec="seconds")
    if facts["telling_error"] is not None:
        return Reason("runtime", f"{what}, which could not be told at {when}: {facts['telling_error']}")
    times = "once" if facts["told"] == 1 else f"{facts['told']} times"
    start = "" if name == "lambda" else f": start 'aaiclick worker start --runtime {name}' where it runs"
    here = "" if facts["worker_heard_at"] is not None else f"; nobody is there{start}"
    return Reason("runtime", f"{what}, which was told {times}, last at {when}{here}")


def _no_slot(facts: dict[str, Any]) -> Reason:
    holders = ", ".join(str(holder) for holder in facts["key_holders"] or ())
    slots = "the slot" if facts["slots"] == 1 else f"all {facts['slots']} slots"
    return Reason("concurrency", f"{slots} of key {facts['concurrency_key']!r} taken by {holders or 'others'}")


def _in_line(facts: dict[str, Any]) -> Reason:
    ahead = facts["ahead"]
    many = "10000 or more" if ahead >= 10_000 else str(ahead)
    return Reason("ready", f"ready; {many} tasks of queue {facts['queue']!r} come first")
