"""How long what a killed process was at took to begin again, and where the time went when that was long.

Histories say when an attempt began, PostgreSQL when its lease was taken away and when the next one was claimed. Their
clocks are compared once, when everything has come to rest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aaiclick.chaos.history import Seen

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


@dataclass(frozen=True, slots=True)
class Recovery:
    """From the death of a process (`died_at`, by the histories' clock) to the next begin of what it was at."""

    task_id: int
    attempt: int
    died_at: float
    seconds: float


LOST = "SELECT task_id, attempt FROM task_attempts WHERE outcome = 'LOST'"


async def recoveries(
    connection: Connection, seen: dict[int, list[Seen]], strikes: list[dict[str, Any]]
) -> tuple[list[Recovery], int]:
    """All of them, the quickest first; and how often another fault came between: the next attempt was struck as well
    before it began, or whoever had it was frozen.
    """
    lost = {(row["task_id"], row["attempt"]) for row in await connection.fetch(LOST)}
    deaths: dict[int, float] = {}
    for strike in strikes:
        for pid in strike.get("killed", ()):
            deaths.setdefault(pid, strike["at"])
    found: list[Recovery] = []
    again = 0
    for moments in seen.values():
        for m in moments:
            death = deaths.get(m.pid)
            if m.event == "begin" and death is not None and m.at <= death and (m.task_id, m.attempt) in lost:
                later = [o for o in moments if o.event == "begin" and o.attempt > m.attempt]
                after = min(later, key=lambda o: o.at, default=None)
                if after is None or after.at <= death:
                    continue  # it had lost its lease before
                if after.attempt > m.attempt + 1 or _was_frozen(after.pid, death, after.at, strikes):
                    again += 1
                else:
                    found.append(Recovery(m.task_id, m.attempt, death, after.at - death))
    return sorted(found, key=lambda each: each.seconds), again


def _was_frozen(pid: int, since: float, until: float, strikes: list[dict[str, Any]]) -> bool:
    return any(
        pid in strike.get("frozen", ()) and strike["at"] < until and strike["at"] + strike["seconds"] > since
        for strike in strikes
    )


STEPS = """
    SELECT a.outcome::text, a.error_fingerprint, extract(epoch FROM a.ended_at)::float8 AS ended,
        extract(epoch FROM coalesce(n.claimed_at, t.claimed_at))::float8 AS claimed
    FROM tasks t
    LEFT JOIN task_attempts a ON a.task_id = t.id AND a.attempt = $2
    LEFT JOIN task_attempts n ON n.task_id = t.id AND n.attempt = $2 + 1
    WHERE t.id = $1
"""


async def explain(connection: Connection, slow: Sequence[Recovery]) -> list[str]:
    """Where the time of each went, in words: until it was taken back, claimed again, begun."""
    now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    ahead = now - time.monotonic()
    said: list[str] = []
    for each in slow:
        row = await connection.fetchrow(STEPS, each.task_id, each.attempt)
        steps = [] if row is None else [(f"{row['outcome']}", row["ended"]), ("claimed", row["claimed"])]
        told = [f"{what} after {at - ahead - each.died_at:.1f} s" for what, at in steps if at is not None]
        said.append(f"task {each.task_id}, attempt {each.attempt}: {', '.join(told)}, begun after {each.seconds:.1f} s")
    return said
