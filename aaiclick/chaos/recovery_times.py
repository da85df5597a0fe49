"""Recovery times of tasks of killed processes, and the time line of slow recoveries.

Histories have the begin of attempts, PostgreSQL the loss of leases and the next claims. Their clocks are compared once,
after all work is done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aaiclick.chaos.history import AttemptEvent

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class Recovery:
    """From the death of a process (`died_at`, by the histories' clock) to the next begin of its task."""

    task_id: int
    attempt: int
    died_at: float
    seconds: float


LOST = "SELECT task_id, attempt FROM task_attempts WHERE outcome = 'LOST'"


async def find_recoveries(
    connection: Connection, events_by_task: dict[int, list[AttemptEvent]], faults: list[dict[str, Any]]
) -> tuple[list[Recovery], int]:
    """Return all recoveries, fastest first, and the number of those with another fault in between.

    Another fault: the next attempt was killed before it began, or its worker was suspended.
    """
    lost = {(row["task_id"], row["attempt"]) for row in await connection.fetch(LOST)}
    deaths: dict[int, float] = {}
    for fault in faults:
        for pid in fault.get("killed", ()):
            deaths.setdefault(pid, fault["at"])
    recoveries: list[Recovery] = []
    faulted_again = 0
    for events in events_by_task.values():
        for event in events:
            death = deaths.get(event.pid)
            if (
                event.event == "begin"
                and death is not None
                and event.at <= death
                and (event.task_id, event.attempt) in lost
            ):
                later_begins = [begin for begin in events if begin.event == "begin" and begin.attempt > event.attempt]
                next_begin = min(later_begins, key=lambda begin: begin.at, default=None)
                if next_begin is None or next_begin.at <= death:
                    continue  # it had lost its lease before
                if next_begin.attempt > event.attempt + 1 or _was_frozen(next_begin.pid, death, next_begin.at, faults):
                    faulted_again += 1
                else:
                    recoveries.append(Recovery(event.task_id, event.attempt, death, next_begin.at - death))
    return sorted(recoveries, key=lambda recovery: recovery.seconds), faulted_again


def _was_frozen(pid: int, since: float, until: float, faults: list[dict[str, Any]]) -> bool:
    return any(
        pid in fault.get("frozen", ()) and fault["at"] < until and fault["at"] + fault["seconds"] > since
        for fault in faults
    )


STEPS = """
    SELECT a.outcome::text, a.error_fingerprint, extract(epoch FROM a.ended_at)::float8 AS ended,
        extract(epoch FROM coalesce(n.claimed_at, t.claimed_at))::float8 AS claimed
    FROM tasks t
    LEFT JOIN task_attempts a ON a.task_id = t.id AND a.attempt = $2
    LEFT JOIN task_attempts n ON n.task_id = t.id AND n.attempt = $2 + 1
    WHERE t.id = $1
"""


async def explain_recoveries(connection: Connection, slow: Sequence[Recovery]) -> list[str]:
    """Describe the steps of each recovery: lease lost, claimed again, begun."""
    now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    clock_offset = now - time.monotonic()
    lines: list[str] = []
    for recovery in slow:
        row = await connection.fetchrow(STEPS, recovery.task_id, recovery.attempt)
        steps = [] if row is None else [(f"{row['outcome']}", row["ended"]), ("claimed", row["claimed"])]
        parts = [
            f"{step} after {time_ - clock_offset - recovery.died_at:.1f} s"
            for step, time_ in steps
            if time_ is not None
        ]
        parts.append(f"begun after {recovery.seconds:.1f} s")
        lines.append(f"task {recovery.task_id}, attempt {recovery.attempt}: {', '.join(parts)}")
    return lines
