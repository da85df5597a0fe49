"""The invariants of the engine, checked read-only on a live database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

DEFECT_REMEDY = "This is a bug in aaiclick, or its tables were changed by hand: please report it."


@dataclass(frozen=True, slots=True)
class Invariant:
    """An invariant, the statement that finds violations, and the remedy."""

    statement_name: str
    description: str
    remedy: str = DEFECT_REMEDY


INVARIANTS = {
    "I1": Invariant(
        "check_i1_progress",
        "every unfinished task waits for something that will happen",
        "Any worker recovers expired leases and promotes due tasks: start one, or run 'aaiclick doctor --repair'. "
        "'aaiclick tasks why ID' explains the rest; what remains is a bug: please report it.",
    ),
    "I2": Invariant("check_i2_leases", "at most one live lease per task, attempts only rise"),
    "I3": Invariant("check_i3_outcomes", "at most one accepted outcome per attempt, one success per task"),
    "I4": Invariant("check_i4_order", "nothing starts before its predecessors completed"),
    "I5": Invariant(
        "check_i5_keys",
        "one task per idempotency key",
        "The unique index that forbids it was dropped. Restore the schema from a backup before submitting more.",
    ),
    "I6": Invariant(
        "check_i6_counters",
        "counters equal a recount, job status is a function of its tasks",
        f"'aaiclick jobs cancel ID' ends a job that is stuck because of its counters. {DEFECT_REMEDY}",
    ),
    "I7": Invariant(
        "check_i7_tables", "a table's count is the sum of its references, and only live attempts refer to any"
    ),
    "I9": Invariant(
        "check_i9_events",
        "the outbox drains, each event applied once",
        f"Any worker routes pending events: start one. If some remain: {DEFECT_REMEDY[0].lower()}{DEFECT_REMEDY[1:]}",
    ),
    "I10": Invariant(
        "check_i10_leaders",
        "leaders' terms never overlap",
        f"Terms end within seconds: check again. If it remains: {DEFECT_REMEDY[0].lower()}{DEFECT_REMEDY[1:]}",
    ),
    "I11": Invariant(
        "check_i11_tenants",
        "nothing crosses tenants",
        "Stop the workers of both organisations and cancel the tasks listed here: data may leak between them. "
        + DEFECT_REMEDY,
    ),
    "I12": Invariant(
        "check_i12_attempts",
        "attempts stay within their limit, poison tasks become dead letters",
        f"'aaiclick tasks cancel ID' ends it. {DEFECT_REMEDY}",
    ),
    "I13": Invariant(
        "check_i13_flow",
        "limits of jobs, rates and schedules hold, compensations run in reverse",
        f"'aaiclick jobs cancel ID' ends a job too many. {DEFECT_REMEDY}",
    ),
}

GRACE_SECONDS = 60.0
"""How long a lease may have expired, or a task be due, before that is a finding."""

WITH_GRACE_PERIOD = ("I1", "I9")


@dataclass(frozen=True, slots=True)
class InvariantViolation:
    """One violation of an invariant."""

    invariant: str
    kind: str
    id: int
    finding: str


@dataclass(frozen=True, slots=True)
class InvariantReport:
    """Number of violations of one invariant, with up to a hundred examples."""

    invariant: str
    count: int
    findings: list[InvariantViolation]


async def check_invariant(
    connection: Connection, name: str, *, grace_seconds: float = GRACE_SECONDS
) -> InvariantReport:
    """Count violations of one invariant, in one statement."""
    arguments = (grace_seconds,) if name in WITH_GRACE_PERIOD else ()
    rows = await connection.fetch(statement(INVARIANTS[name].statement_name), *arguments)
    findings = [InvariantViolation(name, row["kind"], row["id"], row["finding"]) for row in rows]
    return InvariantReport(name, rows[0]["total"] if rows else 0, findings)


async def check_invariants(connection: Connection, *, grace_seconds: float = GRACE_SECONDS) -> list[InvariantViolation]:
    """Violations of all invariants (at most a hundred of each), in one snapshot."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        reports = [await check_invariant(connection, name, grace_seconds=grace_seconds) for name in INVARIANTS]
    return [finding for report in reports for finding in report.findings]
