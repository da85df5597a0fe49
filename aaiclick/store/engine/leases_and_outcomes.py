"""Leases, claims and outcomes of attempts: the values exchanged between workers and the queue.

They are immutable by convention. They are not declared frozen, since creating a frozen dataclass takes eight times as
long, and several are created for each task.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field, with_config

from aaiclick.store.json_types import JsonText, SnowflakeId

CRASH_FINGERPRINT = "worker crashed"
"""The fingerprint of an attempt that ended with the death of its worker process; the claim statements test for it."""


MAX_RELEASES = 20
MAX_RELEASES_SECONDS = 86_400.0
"""A task becomes a dead letter if its attempts end uncharged that often in a row, over so long a time.

A count alone would end tasks in an outage of an hour; a time alone would end one that was released yesterday and waited
in a queue since. A day is the default timeout of a job.
"""

MAX_RELEASE_DELAY_SECONDS = 300.0
"""Longest delay after an uncharged end: bounds both the wait after an outage and the rows of history that it leaves."""

UNDELAYED_RELEASES = 3
"""Releases of a running task (its worker stops) without a delay; further ones are delayed."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(slots=True)
class Lease:
    """The right to run one attempt of one task. Every write by a worker is fenced by (task, attempt, token)."""

    task_id: SnowflakeId
    attempt: Annotated[int, Field(ge=1, le=2**31 - 1)]
    token: UUID
    linked: bool = field(default=False, compare=False)
    """A hint that the completion concerns other tasks. A wrong hint costs one statement."""
    grouped: bool = field(default=False, compare=False)
    """A hint that it concerns groups, concurrency keys or returned tasks. A wrong hint costs some statements."""


@dataclass(slots=True)
class Claim:
    """A claimed task with its lease."""

    lease: Lease
    org_id: UUID
    job_id: SnowflakeId | None
    group_id: SnowflakeId | None
    type: str
    entrypoint: str | None
    kwargs: JsonText
    timeout_seconds: float | None
    failures: int
    retry_policy: JsonText | None
    suspect: bool = False
    """A worker process died while it held this task: run it alone, since it may be the cause."""
    queue: str = "default"
    lease_seconds: float | None = None
    """Lease duration after a heartbeat, if the task sets one; else the worker's."""
    priority: int = 0
    shared: bool = True
    """The installation has more than one organisation: only code on the operator's allowlist may run."""
    runs_once: bool = False
    """Its code must not run twice: the queue has to record that it begins before it does."""


OrgQueue = tuple[UUID, str]
"""Organisation and name of a queue."""


@dataclass(slots=True)
class OutcomeCounts:
    """Numbers of accepted completions and failures."""

    completed: int = 0
    failed: int = 0


MAX_REPORTED_QUEUES = 1_000
"""Number of queues in one report of outcome counts."""

WAIT_ARGUMENT = "aaiclick_wait"
"""Argument of a task with the state of its wait; arguments of users cannot have this name."""

MAX_WAIT_SECONDS = 366 * 86_400.0
"""Longest wait, and the default; the timeout of the job counts too."""

MAX_NAME_CHARACTERS = 1_000

Seconds = Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to the members of a role; `form` and `shown` are JSON objects as text."""

    title: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]
    role: Annotated[str, Field(min_length=1, max_length=100)]
    form: JsonText | None = None
    shown: JsonText | None = None


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Wait:
    """What a task waits for: a time, an event, the end of a job, its next poll, or a person's decision.

    `seconds` is the delay until it goes on at the latest, `at` an absolute time instead; `deadline_seconds` limits all
    waits of the task together.
    """

    wait_type: Literal["time", "event", "job", "poll", "approval"]
    seconds: Seconds = MAX_WAIT_SECONDS
    at: AwareDatetime | None = None
    deadline_seconds: Seconds = MAX_WAIT_SECONDS
    name: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)] = ""
    key: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)] = ""
    job_id: SnowflakeId | None = None
    approval: ApprovalRequest | None = None


@with_config(ConfigDict(extra="forbid"))
@dataclass(slots=True)
class Success:
    """The attempt succeeded; `result` is JSON text, in which results of `awaits` may be placeholders."""

    lease: Lease
    result: str | None = None
    began: float | None = None
    """When the attempt began, by the monotonic clock of this machine: its wall clock may be wrong."""
    awaits: Sequence[int] = ()
    """Tasks that it returned: it completes when they have completed."""
    tables: tuple[str, ...] | None = None
    """Tables in the result; None if there are none and the attempt held none, which allows the fast path."""
    literal: str | None = None
    """Value of a small result, as text: the table in `result` does not exist."""
    effects: str | None = None
    """`catalog.runs.Effects` of a task of a DAG as JSON text, written in the transaction of its completion."""
    branch: Sequence[str] | None = None
    """Names of the dependents that run; the others are skipped. None: all run."""
    wait: Wait | None = None
    """The attempt ended in order to wait; the task goes on with another attempt."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(slots=True)
class Failure:
    """The attempt failed. `delay_seconds`: back-off before a retry; `charged`: it counts against `max_attempts`."""

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
    """Apply only if the lease has expired: set by the reaper."""
    tests: tuple[dict[str, Any], ...] = ()
    """Results of data tests, one of which failed; written in the transaction that ends the attempt."""


def to_cancelled_failure(success: Success) -> Failure:
    """The outcome of an attempt that succeeded after the cancellation of its task was requested.

    `fail_tasks` makes the task CANCELLED; with a lost lease it changes nothing.
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
    """Response to a heartbeat: tasks with lost leases, and tasks with a cancellation request."""

    lost: set[int]
    cancelled: set[int]


def seconds_since(began: float | None) -> float | None:
    """Seconds since a monotonic time; the database subtracts them from its own clock."""
    return None if began is None else max(0.0, time.monotonic() - began)


def monotonic_seconds_ago(seconds: float | None) -> float | None:
    """The monotonic time of this machine that many seconds ago."""
    return None if seconds is None else time.monotonic() - seconds
