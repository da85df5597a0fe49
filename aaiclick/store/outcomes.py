"""Acknowledging what came of attempts: the fence, and the two ways to complete.

Most tasks have no dependents, no group and no concurrency key: one statement completes any number of them with their
jobs' counters. The others take the longer way, a transaction under the graph locks of their jobs; docs/engine.md
explains the locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import faults
from aaiclick.store import catalog_runs, tables
from aaiclick.store.claims import claim, columns
from aaiclick.store.deadlocks import again
from aaiclick.store.growth import Loosened, discard, hand_over
from aaiclick.store.leases import (
    MOST_RELEASES,
    MOST_RELEASES_SECONDS,
    RELEASE_CAP_SECONDS,
    UNDELAYED_RELEASES,
    Claim,
    Failure,
    Lease,
    Success,
    cancelled_attempt,
    seconds_since,
)
from aaiclick.store.propagate import linked, propagate
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


NOT_HELD = "result not held"
"""The fingerprint of an attempt whose result has a table that it neither held nor was given."""


RELEASED = "released"
"""The fingerprint of an attempt that was released once too often."""


async def acknowledge(
    connection: Connection,
    *,
    worker_id: int,  # noqa: ARG001  (the token is the fence; the name of the speaker adds nothing)
    successes: Sequence[Success] = (),
    failures: Sequence[Failure] = (),
    releases: Sequence[Lease] = (),
    now: datetime | None = None,
) -> set[int]:
    """Make outcomes known; returns the ids of the tasks for which the lease still held. The others changed nothing."""
    accepted: set[int] = set()
    plain = [s for s in successes if not (s.lease.linked or s.awaits or s.effects) and s.tables is None]
    if plain:
        plain.sort(key=lambda success: success.lease.task_id)  # rows are locked in this order
        async with faults.statement("complete"):
            rows = await again(lambda: connection.fetch(statement("complete"), *_columns(plain), now))
        accepted.update(row["id"] for row in rows)
    rest = [success for success in successes if success.lease.task_id not in accepted]
    if rest or failures or releases:
        accepted |= await _the_long_way(connection, rest, failures, releases, now)
    return accepted


async def acknowledge_and_claim(
    connection: Connection,
    *,
    worker_id: int,
    successes: Sequence[Success] = (),
    failures: Sequence[Failure] = (),
    releases: Sequence[Lease] = (),
    limit: int,
    queues: Sequence[str],
    lease_seconds: float,
    org_id: UUID | None = None,
    now: datetime | None = None,
) -> tuple[set[int], list[Claim]]:
    """Acknowledge, then claim what that made ready: two transactions, so a claim never undoes an acknowledgement."""
    accepted: set[int] = set()
    if successes or failures or releases:
        accepted = await acknowledge(
            connection, worker_id=worker_id, successes=successes, failures=failures, releases=releases, now=now
        )
    if limit <= 0:
        return accepted, []
    claims = await claim(
        connection,
        worker_id=worker_id,
        limit=limit,
        queues=queues,
        lease_seconds=lease_seconds,
        org_id=org_id,
        now=now,
    )
    return accepted, claims


class _MoreLocks(Exception):  # noqa: N818  (a signal to begin anew, not an error)
    """A task was linked into its job's graph while we began: begin again with every lock."""


class _NotHeld(Exception):  # noqa: N818  (likewise)
    """Results have tables that are not theirs to hold: begin again, with those tasks as failures."""

    def __init__(self, tables: Mapping[int, str]) -> None:
        self.tables = tables


async def _the_long_way(
    connection: Connection,
    successes: Sequence[Success],
    failures: Sequence[Failure],
    releases: Sequence[Lease],
    now: datetime | None,
) -> set[int]:
    try:
        accepted = await _end_with_locks(connection, successes, failures, releases, now)
    except _NotHeld as found:
        refused = [_refusal(each, found.tables) for each in successes if each.lease.task_id in found.tables]
        successes = [each for each in successes if each.lease.task_id not in found.tables]
        accepted = await _end_with_locks(connection, successes, [*failures, *refused], releases, now)
    # Nobody is told before it is on disk; others need not wait for that to take the locks.
    async with faults.statement("flush"):
        await connection.execute(statement("flush"))
    return accepted


def _refusal(success: Success, tables: Mapping[int, str]) -> Failure:
    return Failure(
        success.lease,
        f"It returned an Object in table {tables[success.lease.task_id]}, which is not its own: released or unknown.",
        NOT_HELD,
        permanent=True,
        began=success.began,
    )


async def _end_with_locks(
    connection: Connection,
    successes: Sequence[Success],
    failures: Sequence[Failure],
    releases: Sequence[Lease],
    now: datetime | None,
) -> set[int]:
    # Rows are locked in the order given.
    successes = sorted(successes, key=lambda success: success.lease.task_id)
    failures = sorted(failures, key=lambda failure: failure.lease.task_id)
    releases = sorted(releases, key=lambda lease: lease.task_id)

    async def end(alone: bool) -> set[int]:
        async with faults.transaction(connection, "end"):
            return await _end(connection, successes, failures, releases, alone, now)

    try:
        return await again(lambda: end(alone=bool(failures) or any(success.awaits for success in successes)))
    except _MoreLocks:
        return await again(lambda: end(alone=True))


async def _end(
    connection: Connection,
    successes: Sequence[Success],
    failures: Sequence[Failure],
    releases: Sequence[Lease],
    alone: bool,
    now: datetime | None,
) -> set[int]:
    ids = [*(s.lease.task_id for s in successes), *(f.lease.task_id for f in failures), *(r.task_id for r in releases)]
    locks = {row["job_id"]: row["alone"] for row in await connection.fetch(statement("lock_jobs"), ids, alone)}
    ended: list[asyncpg.Record] = []
    loosened = Loosened()
    done = [success for success in successes if not success.awaits]
    failures = list(failures)
    if done:
        ended += await connection.fetch(statement("finish"), *_columns(done), now)
        finished = {row["id"] for row in ended}
        failures += [cancelled_attempt(success) for success in done if success.lease.task_id not in finished]
    for success in successes:
        if success.awaits:
            outcome = await hand_over(connection, success, loosened, now)
            if isinstance(outcome, Failure):
                failures.append(outcome)
            elif outcome is not None:
                ended.append(outcome)
    outgrown = [(row["id"], row["attempt"]) for row in ended if row["stale"]]
    if releases:
        releases, exhausted = await _divide_releases(connection, releases, now)
        failures += exhausted
    if failures:
        limits = MOST_RELEASES, MOST_RELEASES_SECONDS, RELEASE_CAP_SECONDS
        failed = await connection.fetch(statement("fail"), *_failure_columns(failures), now, *limits)
        ended += failed
        outgrown += [(row["id"], 0) for row in failed if row["status"] == "PASSED_OVER" and row["followed"]]
    if releases:
        limits = UNDELAYED_RELEASES, RELEASE_CAP_SECONDS
        ended += await connection.fetch(statement("release"), *columns(releases), now, *limits)
    if any(linked(row) and not _suffices(locks, row) for row in ended):
        raise _MoreLocks
    accepted = {row["id"] for row in ended}
    refused = {failure.lease.task_id for failure in failures}
    not_held = await tables.publish(connection, (s for s in successes if s.lease.task_id in accepted - refused))
    if not_held:
        raise _NotHeld(not_held)
    given_up = [*(failure.lease for failure in failures), *releases]
    await tables.release_attempts(connection, [lease for lease in given_up if lease.task_id in accepted])
    if outgrown:
        await discard(connection, outgrown, loosened)
    effects = {s.lease.task_id: s.effects for s in successes if s.effects is not None}
    events = await catalog_runs.leave_behind(connection, ended, effects) if effects else None
    await propagate(connection, ended, now, loosened, events)
    return accepted


async def _divide_releases(
    connection: Connection, releases: Sequence[Lease], now: datetime | None
) -> tuple[list[Lease], list[Failure]]:
    """Releases, and those that are one too many as failures: the statement `fail` makes them dead letters."""
    ids = [lease.task_id for lease in releases]
    rows = await connection.fetch(statement("exhausted_releases"), ids, MOST_RELEASES, MOST_RELEASES_SECONDS, now)
    exhausted = {row["id"] for row in rows}
    failures = [
        Failure(lease, "Its worker stopped before it had ended.", RELEASED, charged=False, outcome="RELEASED")
        for lease in releases
        if lease.task_id in exhausted
    ]
    return [lease for lease in releases if lease.task_id not in exhausted], failures


def _suffices(locks: dict[int, bool], row: asyncpg.Record) -> bool:
    """Groups and failures need the graph alone; a shared lock is enough to tell dependent tasks."""
    alone = locks.get(row["job_id"])
    if alone is None or alone:
        return alone is not None
    return row["status"] == "PENDING" or (
        row["status"] == "COMPLETED" and row["group_id"] is None and not row["gates"] and not row["stale"]
    )


def _columns(successes: Sequence[Success]) -> tuple[list[Any], ...]:
    return (
        *columns([success.lease for success in successes]),
        _column([success.result for success in successes]),
        _column([seconds_since(success.began) for success in successes]),
    )


def _column(values: list[Any]) -> list[Any]:
    """`unnest` fills up with NULL: a column of nothing else is sent as no values at all."""
    return values if any(value is not None for value in values) else []


def _failure_columns(failures: Sequence[Failure]) -> tuple[list[Any], ...]:
    return (
        *columns([failure.lease for failure in failures]),
        [failure.error for failure in failures],
        [failure.fingerprint for failure in failures],
        [failure.permanent for failure in failures],
        [failure.delay_seconds for failure in failures],
        [failure.charged for failure in failures],
        [seconds_since(failure.began) for failure in failures],
        [failure.expired for failure in failures],
        [failure.outcome for failure in failures],
    )
