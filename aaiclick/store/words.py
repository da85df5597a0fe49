"""The words that rows and programs share: states, and the names of what is always there.

They stand apart from the models: whoever only reads and writes rows by SQL need not wait for SQLAlchemy.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

DEFAULT_ORG_ID = UUID("00000000-0000-4000-8000-000000000001")
"""The org that owns everything until a second one is made; the first migration inserts it."""

DEFAULT_ORG_SLUG = "default"
DEFAULT_QUEUE = "default"

RUNTIME_QUEUE = "runtime:"
"""How queues begin whose tasks wait for a runtime: no worker takes them unless it names the queue (`claim.sql`)."""

DISPATCHER_QUEUE = "runtime:dispatcher"
"""The exception: workers with a database of their own take these, those of a server do not."""


class JobStatus(StrEnum):
    """PENDING → RUNNING → an end."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TaskStatus(StrEnum):
    """PENDING → CLAIMED → RUNNING → an end; FAILED with `next_retry_at` is not an end."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DEAD_LETTER = "DEAD_LETTER"
    CANCELLED = "CANCELLED"


class TaskReadiness(StrEnum):
    """Why a waiting task waits; NULL on a task that does not wait."""

    READY = "READY"  # for a worker
    TIME = "TIME"  # for `available_at`: a scheduled start or a retry
    BLOCKED = "BLOCKED"  # for predecessors, or for its group to open
    HELD = "HELD"  # for somebody to let it go


class WorkerStatus(StrEnum):
    """Whether a worker has work, waits for it, or has gone."""

    ACTIVE = "ACTIVE"
    IDLE = "IDLE"
    STOPPED = "STOPPED"


class Cancellation(StrEnum):
    """The answer to a request to cancel a job or a task."""

    CANCELLED = "cancelled"  # it has ended as CANCELLED, or as FAILED if something of it had failed before
    REQUESTED = "requested"  # a worker has it; it will end as above whatever that worker reports
    OVER = "over"  # it had ended before


class AttemptOutcome(StrEnum):
    """How an attempt that did not succeed ended."""

    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    LOST = "LOST"  # the lease ran out: the worker died, hung or was cut off
    RELEASED = "RELEASED"  # given back unfinished and not charged
    CANCELLED = "CANCELLED"


class NodeType(StrEnum):
    """What an end of a dependency is."""

    TASK = "task"
    GROUP = "group"


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
    """What keeps a ClickHouse table alive."""

    ATTEMPT = "ATTEMPT"  # what a running attempt makes or reads
    RESULT = "RESULT"  # what a completed task has returned
    TASK = "TASK"  # arguments of a task without a job
    JOB = "JOB"  # arguments of the tasks of a job
    NAME = "NAME"
    SESSION = "SESSION"  # a process outside of tasks that says regularly that it lives


BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
"""Upper bounds of the durations that metrics count, in seconds."""
