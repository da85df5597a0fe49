"""Policy of the jobs of one function: one value, passed whole from the keyword arguments of `@job` to the engine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from aaiclick.errors import SubmitError
from aaiclick.store.enums import WhenBusy

MAX_CONCURRENCY = 10_000


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """Limits of jobs, stored with their function as JSON; a new option is a field here and a keyword of `@job`."""

    concurrency: int | None = None
    """How many unfinished jobs of the name may run; see `engine.job_concurrency`."""

    when_busy: WhenBusy = "queue"
    """What a further job does."""

    deadline_seconds: float | None = None
    """A job that has not ended so long after its submission opens an incident."""

    pin_version: bool | str = False
    """Which version of the code runs its tasks: a named one, or (True) that of its caller."""

    handlers: Literal["failed", "ended"] | None = None
    """Whether the function has `on_failure` (failed) or `finally_` (ended), which run although its call has failed."""

    def __post_init__(self) -> None:
        if self.concurrency is not None and not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency lies between 1 and {MAX_CONCURRENCY}")
        if self.deadline_seconds is not None and not self.deadline_seconds > 0:
            raise ValueError("deadline_seconds is positive")
        if self.pin_version == "":
            raise ValueError("pin_version is a version, true or false")

    def find_pinned_version(self, callers_version: str | None) -> str | None:
        """The version that must run the tasks. The caller of a job that is started by name is its registration."""
        return callers_version if self.pin_version is True else self.pin_version or None

    def require_pinned_version(self, registered_version: str | None, entrypoint: str) -> str | None:
        """The version that must run the tasks of a job that is started by name; raises SubmitError without one."""
        if self.pin_version is True and registered_version is None:
            raise SubmitError(
                f"The tasks of {entrypoint!r:.80} are pinned to the version of its code, which is not registered.",
                remedy="Start a worker that knows its version, or name one: pin_version='VERSION'.",
            )
        return self.find_pinned_version(registered_version)

    def to_json(self) -> str:
        """Fields that differ from their defaults, as JSON text."""
        default = asdict(DEFAULT_POLICY)
        return json.dumps({name: value for name, value in asdict(self).items() if value != default[name]})

    @classmethod
    def from_json(cls, text: str) -> JobPolicy:
        """The policy in a row of `job_functions`."""
        return cls(**json.loads(text))


DEFAULT_POLICY = JobPolicy()
