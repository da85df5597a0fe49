"""Enums and constants of the schema, importable without SQLAlchemy."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from uuid import UUID

DEFAULT_ORG_ID = UUID("00000000-0000-4000-8000-000000000001")
"""The default org, inserted by the first migration."""

DEFAULT_ORG_SLUG = "default"
DEFAULT_QUEUE = "default"

RUNTIME_QUEUE = "runtime:"
"""Prefix of queues of runtimes: only workers that name the queue claim their tasks (`claim_tasks`)."""

DISPATCHER_QUEUE = "runtime:dispatcher"
"""The exception: workers with a database of their own take these, those of a server do not."""

VERSION_QUEUE = "runtime:version:"
"""Prefix of queues of pinned tasks, followed by a version of the code and a queue: only workers with it claim them."""

NOTIFICATION_QUEUE = "runtime:notifications"
"""Deliveries of notifications; only the notification sender claims them."""

TURN_TYPE = "wait_for_turn"
"""Type of the tasks in which limited jobs wait; requests cannot use it."""

IncidentRule = Literal[
    "job_failed", "task_failed", "data_test_failed", "alert_raised", "deadline_missed", "source_dead",
    "start_failed", "event_unroutable", "channel_failing",
]  # fmt: skip
Severity = Literal["info", "warning", "error", "critical"]
"""From the lowest to the highest."""

ChannelType = Literal["webhook", "slack", "teams", "pagerduty", "email"]
NotificationEvent = Literal["opened", "escalated", "reminder", "closed"]


class JobStatus(StrEnum):
    """PENDING → RUNNING → COMPLETED, FAILED or CANCELLED.

    ```python
    JobStatus.FAILED == "FAILED"  # True
    ```
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TaskStatus(StrEnum):
    """PENDING → CLAIMED → RUNNING → a final status; FAILED with `next_retry_at` is not final.

    ```python
    load.task().status is TaskStatus.PENDING  # True
    ```
    """

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DEAD_LETTER = "DEAD_LETTER"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"  # not chosen by a branch, or a failure handler without a failure


class TriggerRule(StrEnum):
    """When a task runs; NULL: when all predecessors have completed. The last two are rules of handlers."""

    ANY = "any"  # when all predecessors have completed or were skipped, and at least one has completed
    FAILED = "failed"  # when all predecessors have ended and one has failed; else it is skipped
    ENDED = "ended"  # when all predecessors have ended, whatever their outcome


class TaskReadiness(StrEnum):
    """Why a task waits; NULL if it does not wait."""

    READY = "READY"  # for a worker
    TIME = "TIME"  # for `available_at`: a scheduled start or a retry
    BLOCKED = "BLOCKED"  # for predecessors, or for its group to open
    HELD = "HELD"  # for a slot of its concurrency key, or for a resume


class WorkerStatus(StrEnum):
    """Whether a worker has tasks, waits for tasks, or has stopped.

    ```python
    await list_workers(WorkerStatus.IDLE)  # []
    ```
    """

    ACTIVE = "ACTIVE"
    IDLE = "IDLE"
    STOPPED = "STOPPED"


class Cancellation(StrEnum):
    """The response to a request to cancel a job or a task."""

    CANCELLED = "cancelled"  # it has ended as CANCELLED, or as FAILED if a task had failed before
    REQUESTED = "requested"  # a worker has it; it will end as above whatever that worker reports
    OVER = "over"  # it had ended before


class AttemptOutcome(StrEnum):
    """How an attempt that did not succeed ended."""

    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    LOST = "LOST"  # the lease ran out: the worker died, hung or was cut off
    RELEASED = "RELEASED"  # released unfinished and not charged
    CANCELLED = "CANCELLED"


class NodeType(StrEnum):
    """Type of a node of a dependency."""

    TASK = "task"
    GROUP = "group"
    HANDLER = "handler"  # a dependent task that waits for the end of its predecessors, not for their success


class OutboxStatus(StrEnum):
    PENDING = "Pending"
    PROCESSING = "Processing"
    DONE = "Done"
    FAILED = "Failed"


class DefinitionStatus(StrEnum):
    """A source is Pending, Running, Dead or Draining; a reactive definition Idle or Running."""

    PENDING = "Pending"
    RUNNING = "Running"
    DEAD = "Dead"
    DRAINING = "Draining"
    IDLE = "Idle"


class ReferenceOwner(StrEnum):
    """Owner of a reference to a ClickHouse table."""

    ATTEMPT = "ATTEMPT"  # tables that a running attempt creates or reads
    RESULT = "RESULT"  # the result of a completed task
    TASK = "TASK"  # arguments of a task without a job
    JOB = "JOB"  # arguments of the tasks of a job
    NAME = "NAME"
    SESSION = "SESSION"  # a process outside of tasks that sends heartbeats


BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
"""Upper bounds of the histogram buckets of metrics, in seconds."""

TERM_SECONDS = 6.0
"""Length of a leader's term; the loops should run three times per term. If the leader dies, they pause for the rest of
its term.
"""

MAX_CURSOR_CHARACTERS = 500
"""Longest cursor of a dataset update."""

WhenBusy = Literal["queue", "skip", "keep_newest", "cancel_running"]
"""What a new job does while as many jobs of its name as allowed are unfinished."""
