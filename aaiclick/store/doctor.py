"""The invariants of the engine, checked read-only on a live database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

DEFECT = "This is a defect of aaiclick, or somebody else wrote to its tables: please report it."


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must always hold, the statement that finds where it does not, and what to do then."""

    check: str
    says: str
    remedy: str = DEFECT


INVARIANTS = {
    "I1": Invariant(
        "check_i1_progress",
        "everything unfinished waits for something that will come",
        "Any worker takes expired leases back and lets due tasks begin: start one, or run 'aaiclick doctor --repair'. "
        "'aaiclick tasks why ID' tells of the rest; what stays is a defect: please report it.",
    ),
    "I2": Invariant("check_i2_leases", "at most one live lease per task, attempts only rise"),
    "I3": Invariant("check_i3_outcomes", "at most one accepted outcome per attempt, one success per task"),
    "I4": Invariant("check_i4_order", "nothing starts before its predecessors completed"),
    "I5": Invariant(
        "check_i5_keys",
        "one task per idempotency key",
        "An index forbids it: somebody dropped it. Restore the schema from a backup before more is submitted.",
    ),
    "I6": Invariant(
        "check_i6_counters",
        "counters equal a recount, job status is a function of its tasks",
        f"'aaiclick jobs cancel ID' ends a job that its counters hold up. {DEFECT}",
    ),
    "I7": Invariant(
        "check_i7_tables", "a table's count is the sum of its references, and only live attempts refer to any"
    ),
    "I9": Invariant(
        "check_i9_events",
        "the outbox drains, each event applied once",
        f"Any worker routes events that wait: start one. If some wait nevertheless: {DEFECT[0].lower()}{DEFECT[1:]}",
    ),
    "I10": Invariant(
        "check_i10_leaders",
        "leaders' terms never overlap",
        f"Terms end by themselves within seconds: look again. If it stays: {DEFECT[0].lower()}{DEFECT[1:]}",
    ),
    "I11": Invariant(
        "check_i11_tenants",
        "nothing crosses tenants",
        "Stop the workers of both organisations, and cancel what is named here: it may show one the data of the other. "
        + DEFECT,
    ),
    "I12": Invariant(
        "check_i12_attempts",
        "attempts stay within the most allowed, poison ends in the dead letters",
        f"'aaiclick tasks cancel ID' ends it. {DEFECT}",
    ),
}

GRACE_SECONDS = 60.0
"""How long a lease may have run out, or a task be due, before that is a finding: loops need a moment."""

GRACEFUL = ("I1", "I9")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    invariant: str
    kind: str
    id: int
    finding: str


@dataclass(frozen=True, slots=True)
class Checked:
    """How often one invariant does not hold, with up to a hundred examples."""

    invariant: str
    count: int
    findings: list[Finding]


async def check_invariant(connection: Connection, name: str, *, grace_seconds: float = GRACE_SECONDS) -> Checked:
    """Count violations of one invariant, in one statement."""
    arguments = (grace_seconds,) if name in GRACEFUL else ()
    rows = await connection.fetch(statement(INVARIANTS[name].check), *arguments)
    findings = [Finding(name, row["kind"], row["id"], row["finding"]) for row in rows]
    return Checked(name, rows[0]["total"] if rows else 0, findings)


async def check_invariants(connection: Connection, *, grace_seconds: float = GRACE_SECONDS) -> list[Finding]:
    """Violations of every invariant (at most a hundred of each), by one snapshot."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        checked = [await check_invariant(connection, name, grace_seconds=grace_seconds) for name in INVARIANTS]
    return [finding for each in checked for finding in each.findings]
