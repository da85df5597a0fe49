"""Acknowledge outcomes of attempts, fenced by their leases.

Most tasks have no dependents, no group and no concurrency key: one statement completes any number of them and updates
their jobs. All other outcomes need a transaction under the graph locks of the jobs (docs/internals/engine.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.store.catalog import definition_runs
from aaiclick.store.catalog.data_test_results import write_test_results
from aaiclick.store.deadlock_retry import retry_on_deadlock
from aaiclick.store.engine.claims import claim, lease_columns
from aaiclick.store.engine.dynamic_tasks import PropagationDelta, await_returned_tasks, discard_additions
from aaiclick.store.engine.incidents import record_failed_tasks
from aaiclick.store.engine.leases_and_outcomes import (
    MAX_RELEASE_DELAY_SECONDS,
    MAX_RELEASES,
    MAX_RELEASES_SECONDS,
    UNDELAYED_RELEASES,
    Claim,
    Failure,
    Lease,
    Success,
    seconds_since,
    to_cancelled_failure,
)
from aaiclick.store.engine.propagate import is_linked, propagate
from aaiclick.store.engine.skipped_tasks import choose_branches
from aaiclick.store.engine.waits import RefusedWait, begin_wait
from aaiclick.store.statements import statement
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


NOT_HELD_FINGERPRINT = "result not held"
"""The fingerprint of an attempt that returned a table that is not among its own or its arguments."""


REFUSED_WAIT_FINGERPRINT = "wait"
"""The fingerprint of an attempt that cannot wait, or no longer."""


RELEASED_FINGERPRINT = "released"
"""The fingerprint of an attempt that exceeds the limit of releases."""


async def acknowledge(
    connection: Connection,
    *,
    worker_id: int,  # noqa: ARG001  (the lease token is the fence)
    successes: Sequence[Success] = (),
    failures: Sequence[Failure] = (),
    releases: Sequence[Lease] = (),
    now: datetime | None = None,
) -> set[int]:
    """Record outcomes; returns the ids of tasks with valid leases. Outcomes of lost leases change nothing."""
    accepted, unflushed = await _acknowledge(connection, successes, failures, releases, now)
    await unflushed.flush(connection)
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
    on_claimed: Callable[[Sequence[Claim]], None] | None = None,
) -> tuple[set[int], list[Claim]]:
    """Acknowledge, then claim, in separate transactions: a failed claim does not undo an acknowledgement.

    Other workers are notified of newly ready tasks that the claim has left. `on_claimed` receives the claims before the
    acknowledgement is durable, so that they start meanwhile; without it, the commit of the claim makes both durable.
    """
    accepted, unflushed = await _acknowledge(connection, successes, failures, releases, now)
    claims: list[Claim] = []
    if limit > 0:
        claims = await claim(
            connection,
            worker_id=worker_id,
            limit=limit,
            queues=queues,
            lease_seconds=lease_seconds,
            org_id=org_id,
            now=now,
            durable=unflushed.is_pending and on_claimed is None,
        )
    if on_claimed is not None:
        on_claimed(claims)
    is_queue_empty = len(claims) < limit and org_id is None
    if is_queue_empty and (not queues or unflushed.ready.issubset(queues)):
        unflushed.ready.clear()
    if on_claimed is not None or not claims or unflushed.ready:
        await unflushed.flush(connection)
    return accepted, claims


@dataclass(slots=True)
class _Unflushed:
    """Asynchronous commits of an acknowledgement, and queues with newly ready tasks that were not notified yet."""

    is_pending: bool = False
    ready: set[str] = field(default_factory=set[str])

    async def flush(self, connection: Connection) -> None:
        """Wait until the commits are on disk, and notify workers."""
        if self.is_pending:
            async with failpoints.statement("flush"):
                await connection.execute(statement("flush_wal"), sorted(self.ready))


async def _acknowledge(
    connection: Connection,
    successes: Sequence[Success],
    failures: Sequence[Failure],
    releases: Sequence[Lease],
    now: datetime | None,
) -> tuple[set[int], _Unflushed]:
    """Record outcomes by the shortest path of each."""
    accepted: set[int] = set()
    unflushed = _Unflushed()
    # Rows are locked in this order.
    simple = sorted((s for s in successes if _is_simple(s)), key=lambda success: success.lease.task_id)
    if plain := [success for success in simple if not success.lease.linked]:
        async with failpoints.statement("complete"):
            rows = await retry_on_deadlock(
                lambda: connection.fetch(statement("complete_tasks"), *_success_columns(plain), now)
            )
        accepted.update(row["id"] for row in rows)
    if linked := [success for success in simple if success.lease.linked and not success.lease.grouped]:
        async with failpoints.statement("complete_linked"):
            row = await retry_on_deadlock(
                lambda: connection.fetchrow(statement("complete_linked_tasks"), *_success_columns(linked), now)
            )
        if row is not None and row["completed"]:
            accepted.update(row["completed"])
            unflushed.is_pending = True
            unflushed.ready.update(row["ready"] or ())
    rest = [success for success in successes if success.lease.task_id not in accepted]
    if rest or failures or releases:
        accepted |= await _complete_with_locks(connection, rest, failures, releases, now)
        unflushed.is_pending = True
    return accepted, unflushed


def _is_simple(success: Success) -> bool:
    """Whether the end of the attempt writes nothing but the task's row and what depends on it."""
    return success.tables is None and not (
        success.awaits or success.branch is not None or success.wait or success.effects
    )


class _MoreLocks(Exception):  # noqa: N818  (control flow, not an error)
    """A task was linked into its job's graph concurrently: retry with exclusive locks."""


class _NotHeld(Exception):  # noqa: N818  (likewise)
    """Results contain tables that their attempts do not hold: retry with those tasks as failures."""

    def __init__(self, tables: Mapping[int, str]) -> None:
        self.tables = tables


async def _complete_with_locks(
    connection: Connection,
    successes: Sequence[Success],
    failures: Sequence[Failure],
    releases: Sequence[Lease],
    now: datetime | None,
) -> set[int]:
    try:
        accepted = await _end_in_transaction(connection, successes, failures, releases, now)
    except _NotHeld as not_held:
        refused = [
            _not_held_failure(success, not_held.tables)
            for success in successes
            if success.lease.task_id in not_held.tables
        ]
        successes = [success for success in successes if success.lease.task_id not in not_held.tables]
        accepted = await _end_in_transaction(connection, successes, [*failures, *refused], releases, now)
    return accepted


def _not_held_failure(success: Success, tables: Mapping[int, str]) -> Failure:
    return Failure(
        success.lease,
        f"The task returned an Object in table {tables[success.lease.task_id]}, which is released or unknown.",
        NOT_HELD_FINGERPRINT,
        permanent=True,
        began=success.began,
    )


async def _end_in_transaction(
    connection: Connection,
    successes: Sequence[Success],
    failures: Sequence[Failure],
    releases: Sequence[Lease],
    now: datetime | None,
) -> set[int]:
    # The statements lock rows in the order of their arguments.
    successes = sorted(successes, key=lambda success: success.lease.task_id)
    failures = sorted(failures, key=lambda failure: failure.lease.task_id)
    releases = sorted(releases, key=lambda lease: lease.task_id)

    async def end(exclusive: bool) -> set[int]:
        async with failpoints.transaction(connection, "end"):
            return await _end_attempts(connection, successes, failures, releases, exclusive, now)

    try:
        return await retry_on_deadlock(
            lambda: end(exclusive=bool(failures) or any(s.awaits or s.branch is not None for s in successes))
        )
    except _MoreLocks:
        return await retry_on_deadlock(lambda: end(exclusive=True))


async def _end_attempts(
    connection: Connection,
    successes: Sequence[Success],
    failures: Sequence[Failure],
    releases: Sequence[Lease],
    exclusive: bool,
    now: datetime | None,
) -> set[int]:
    ids = [*(s.lease.task_id for s in successes), *(f.lease.task_id for f in failures), *(r.task_id for r in releases)]
    locks = {row["job_id"]: row["exclusive"] for row in await connection.fetch(statement("lock_jobs"), ids, exclusive)}
    ended: list[asyncpg.Record] = []
    delta = PropagationDelta()
    failures = list(failures)
    if done := [success for success in successes if not success.awaits and success.wait is None]:
        rows, unfinished = await _finish_tasks(connection, done, delta, now)
        ended += rows
        failures += unfinished
    for outcome in await _suspend_tasks(connection, successes, delta, now):
        if isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            ended.append(outcome)
    with_discards = [(row["id"], row["attempt"]) for row in ended if row["stale"]]
    if releases:
        releases, exhausted = await _split_releases(connection, releases, now)
        failures += exhausted
    if failures:
        limits = MAX_RELEASES, MAX_RELEASES_SECONDS, MAX_RELEASE_DELAY_SECONDS
        failed = await connection.fetch(statement("fail_tasks"), *_failure_columns(failures), now, *limits)
        ended += failed
        with_discards += [(row["id"], 0) for row in failed if row["status"] == "PASSED_OVER" and row["has_dependents"]]
    if releases:
        limits = UNDELAYED_RELEASES, MAX_RELEASE_DELAY_SECONDS
        ended += await connection.fetch(statement("release_tasks"), *lease_columns(releases), now, *limits)
    if any(is_linked(row) and not _is_lock_sufficient(locks, row) for row in ended):
        raise _MoreLocks
    accepted = {row["id"] for row in ended}
    refused = {failure.lease.task_id for failure in failures}
    not_held = await table_references.publish_results(
        connection, (s for s in successes if s.lease.task_id in accepted - refused)
    )
    if not_held:
        raise _NotHeld(not_held)
    tests = [(f.lease, f.tests) for f in failures if f.tests and f.lease.task_id in accepted]
    if tests:
        await write_test_results(connection, [((lease.task_id, lease.attempt), rows) for lease, rows in tests])
    ended_leases = [*(failure.lease for failure in failures), *releases]
    await table_references.release_attempts(connection, [lease for lease in ended_leases if lease.task_id in accepted])
    if with_discards:
        await discard_additions(connection, with_discards, delta)
    effects = {s.lease.task_id: s.effects for s in successes if s.effects is not None}
    events = await definition_runs.write_effects(connection, ended, effects) if effects else None
    await propagate(connection, ended, now, delta, events)
    if failures:
        await record_failed_tasks(connection, ended, now)
    return accepted


async def _suspend_tasks(
    connection: Connection, successes: Sequence[Success], delta: PropagationDelta, now: datetime | None
) -> list[asyncpg.Record | Failure]:
    """End the attempts of tasks that go on after tasks that they returned, or after a wait."""
    outcomes = [await await_returned_tasks(connection, s, delta, now) for s in successes if s.awaits]
    outcomes += [await _begin_wait(connection, success, now) for success in successes if success.wait is not None]
    return [outcome for outcome in outcomes if outcome is not None]


async def _finish_tasks(
    connection: Connection, successes: Sequence[Success], delta: PropagationDelta, now: datetime | None
) -> tuple[list[asyncpg.Record], list[Failure]]:
    """Complete tasks; returns their rows, and failures of those that were cancelled or chose an unknown branch."""
    choices = {s.lease.task_id: await choose_branches(connection, s) for s in successes if s.branch is not None}
    failures = [choice for choice in choices.values() if isinstance(choice, Failure)]
    refused = {failure.lease.task_id for failure in failures}
    accepted = [success for success in successes if success.lease.task_id not in refused]
    rows = await connection.fetch(statement("finish_tasks"), *_success_columns(accepted), now) if accepted else []
    finished = {row["id"] for row in rows}
    # Dependents of a task that was passed over have already run.
    deciding = {row["id"] for row in rows if not row["passed_over"]}
    for task_id, choice in choices.items():
        if task_id in deciding and not isinstance(choice, Failure):
            delta.skipped_tasks += choice.tasks
            delta.skipped_groups += choice.groups
    failures += [to_cancelled_failure(success) for success in accepted if success.lease.task_id not in finished]
    return rows, failures


async def _begin_wait(
    connection: Connection, success: Success, now: datetime | None
) -> asyncpg.Record | Failure | None:
    assert success.wait is not None  # noqa: S101
    outcome = await begin_wait(connection, success.lease, success.wait, now)
    if not isinstance(outcome, RefusedWait):
        return outcome
    if outcome.error is None:
        return to_cancelled_failure(success)
    return Failure(success.lease, outcome.error, REFUSED_WAIT_FINGERPRINT, permanent=True, began=success.began)


async def _split_releases(
    connection: Connection, releases: Sequence[Lease], now: datetime | None
) -> tuple[list[Lease], list[Failure]]:
    """Split releases into allowed ones and failures of tasks that exceed the limit, which become dead letters."""
    ids = [lease.task_id for lease in releases]
    rows = await connection.fetch(statement("find_exhausted_releases"), ids, MAX_RELEASES, MAX_RELEASES_SECONDS, now)
    exhausted = {row["id"] for row in rows}
    failures = [
        Failure(
            lease, "The worker stopped before the task ended.", RELEASED_FINGERPRINT, charged=False, outcome="RELEASED"
        )
        for lease in releases
        if lease.task_id in exhausted
    ]
    return [lease for lease in releases if lease.task_id not in exhausted], failures


def _is_lock_sufficient(locks: dict[int, bool], row: asyncpg.Record) -> bool:
    """Groups and failures need the exclusive graph lock; a shared one suffices to advance dependent tasks."""
    exclusive = locks.get(row["job_id"])
    if exclusive is None or exclusive:
        return exclusive is not None
    return row["status"] in ("PENDING", "WAITING") or (
        row["status"] == "COMPLETED" and row["group_id"] is None and not row["gates"] and not row["stale"]
    )


def _success_columns(successes: Sequence[Success]) -> tuple[Sequence[object], ...]:
    return (
        *lease_columns([success.lease for success in successes]),
        _omit_if_null([success.result for success in successes]),
        _omit_if_null([seconds_since(success.began) for success in successes]),
        _omit_if_null([success.literal for success in successes]),
    )


def _omit_if_null(values: Sequence[object]) -> Sequence[object]:
    """Send a column of NULLs as an empty array: `unnest` fills up with NULL."""
    return values if any(value is not None for value in values) else []


def _failure_columns(failures: Sequence[Failure]) -> tuple[Sequence[object], ...]:
    return (
        *lease_columns([failure.lease for failure in failures]),
        [failure.error for failure in failures],
        [failure.fingerprint for failure in failures],
        [failure.permanent for failure in failures],
        [failure.delay_seconds for failure in failures],
        [failure.charged for failure in failures],
        [seconds_since(failure.began) for failure in failures],
        [failure.expired for failure in failures],
        [failure.outcome for failure in failures],
    )
