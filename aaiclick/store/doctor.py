"""The invariants of the engine, checked read-only on a live database by one snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

INVARIANTS = {
    "I1": ("check_i1_progress", "everything unfinished waits for something that will come"),
    "I2": ("check_i2_leases", "at most one live lease per task, attempts only rise"),
    "I3": ("check_i3_outcomes", "at most one accepted outcome per attempt, one success per task"),
    "I4": ("check_i4_order", "nothing starts before its predecessors completed"),
    "I5": ("check_i5_keys", "one task per idempotency key"),
    "I6": ("check_i6_counters", "counters equal a recount, job status is a function of its tasks"),
    "I7": ("check_i7_tables", "a table's count is the sum of its references, and only live attempts refer to any"),
    "I9": ("check_i9_events", "the outbox drains, each event applied once"),
    "I10": ("check_i10_leaders", "leaders' terms never overlap"),
    "I12": ("check_i12_attempts", "attempts stay within the most allowed, poison ends in the dead letters"),
}
"""Name → (statement, what it says)."""

GRACE_SECONDS = 60.0
"""How long a lease may have run out, or a task be due, before that is a finding: loops need a moment."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    invariant: str
    kind: str
    id: int
    finding: str


async def check_invariants(connection: Connection, *, grace_seconds: float = GRACE_SECONDS) -> list[Finding]:
    """Every violation of every invariant (at most a hundred of each)."""
    findings: list[Finding] = []
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        for name, (check, _) in INVARIANTS.items():
            arguments = (grace_seconds,) if name in ("I1", "I9") else ()
            rows = await connection.fetch(statement(check), *arguments)
            findings.extend(Finding(name, row["kind"], row["id"], row["finding"]) for row in rows)
    return findings
