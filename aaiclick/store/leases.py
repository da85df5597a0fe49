"""What passes between a worker and the queue: leases, claims, and what came of them.

All are values: nobody changes one. They are not declared frozen, since making a frozen dataclass takes eight times as
long, and several are made for each task.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

CRASHED = "worker crashed"
"""The fingerprint of an attempt whose process died with others in it; `sql/claim.sql` looks for it."""


MOST_RELEASES = 20
MOST_RELEASES_SECONDS = 86_400.0
"""A task whose attempts end uncharged that often in a row, over so long a time, is a dead letter. Both must hold. A
count alone would end tasks in an outage of an hour; a time alone would end one that was released yesterday and waited
in a queue since. A day is the default timeout of a job: after that an operator decides, and redrives the dead letter.
"""

RELEASE_CAP_SECONDS = 300.0
"""Longest delay after an uncharged end. A task is tried again at most this long after the end of an outage, and leaves
no more than 300 rows of history in a day of it.
"""

UNDELAYED_RELEASES = 3
"""Releases of a running task (a worker stops) after which the next ones are delayed."""


@dataclass(slots=True)
class Lease:
    """The right to one attempt of one task. Everything its holder says is fenced by all three."""

    task_id: int
    attempt: int
    token: UUID
    linked: bool = field(default=False, compare=False)
    """A hint: completing it concerns other tasks. A wrong hint costs a statement, nothing else."""


@dataclass(slots=True)
class Claim:
    """A task to run, with the lease on it; `kwargs` and `retry_policy` are JSON text."""

    lease: Lease
    org_id: UUID
    job_id: int | None
    group_id: int | None
    type: str
    entrypoint: str | None
    kwargs: str
    timeout_seconds: float | None
    failures: int
    retry_policy: str | None
    suspect: bool = False
    """A worker process died while it held this task, and nobody knows whose fault it was: run it alone."""
    queue: str = "default"
    lease_seconds: float | None = None
    """How long the lease lasts after a heartbeat, if the task says so: else as long as the worker says."""
    priority: int = 0
    shared: bool = True
    """The installation has more than one organisation: only code that the worker's operator named may run."""


Lane = tuple[UUID, str]
"""An org's queue."""


@dataclass(slots=True)
class Tally:
    """How many attempts completed and failed, and were accepted."""

    completed: int = 0
    failed: int = 0


@dataclass(slots=True)
class Success:
    """The attempt succeeded; `result` is JSON text. With `awaits` it returned tasks, whose results are to take their
    places in `result`: it completes when they have.
    """

    lease: Lease
    result: str | None = None
    began: float | None = None
    """By the monotonic clock of this machine: its wall clock may be wrong."""
    awaits: Sequence[int] = ()
    """Tasks that it returned: it completes when they have."""
    tables: tuple[str, ...] | None = None
    """Tables within the result; None if there are none and the attempt held none: then completing it is cheaper."""
    effects: str | None = None
    """What a task of a DAG leaves behind in the transaction of its completion, as JSON text: see `catalog_runs`."""


@dataclass(slots=True)
class Failure:
    """The attempt failed. `delay_seconds` is the backoff should it be retried; `charged` says whether it counts."""

    lease: Lease
    error: str
    fingerprint: str
    permanent: bool = False
    delay_seconds: float = 0.0
    began: float | None = None
    """By the monotonic clock of this machine."""
    charged: bool = True
    outcome: str = "FAILED"
    expired: bool = False
    """Only if the lease has run out: what the reaper says."""


def cancelled_attempt(success: Success) -> Failure:
    """The outcome of an attempt that succeeded after the cancellation of its task was requested.

    `fail.sql` makes the task CANCELLED; with a lost lease it changes nothing.
    """
    return Failure(
        success.lease,
        "Cancelled while running; the result of the attempt was discarded.",
        "cancelled",
        permanent=True,
        began=success.began,
        charged=False,
        outcome="CANCELLED",
    )


@dataclass(slots=True)
class HeartbeatAnswer:
    """What a worker learns from a heartbeat: leases it no longer has, and tasks whose cancel was asked for."""

    lost: set[int]
    cancelled: set[int]


def seconds_since(began: float | None) -> float | None:
    """How long ago an attempt began: what the queue is told, which knows the time."""
    return None if began is None else max(0.0, time.monotonic() - began)


def began_before(seconds: float | None) -> float | None:
    """The other way round, where another machine says how long ago it was."""
    return None if seconds is None else time.monotonic() - seconds
