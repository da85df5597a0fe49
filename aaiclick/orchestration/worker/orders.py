"""What a supervisor tells its processes, handed down as JSON over a pipe: arguments are seen by others.

Light on purpose: the supervisor imports this and nothing of what runs tasks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aaiclick.targets import ClickHouseTarget, PostgresTarget, ServerTarget, WorkTarget

FINISHED = 79
"""Exit code of a process that has nothing more to do. Not 0: with that a task ends its process more often than not."""
WORN = 80
"""Exit code of a process with code in it that does not end, of a task that others have by now: to be replaced."""
UNFIT = 78
"""Exit code of a process that cannot do what it is asked to, now or later: starting it again is no use."""


def in_words(code: int) -> str:
    """How a process ended."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True)
class Setup:
    """Where the work and the data are, where logs go, and which code may run."""

    work: WorkTarget
    clickhouse: ClickHouseTarget | None
    """None if it comes with the claims."""
    log_directory: Path
    allowed_modules: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    directory: str = ""
    memory_bytes: int | None = None
    """The most that each process may use for its data."""
    sends_logs: bool = True
    """Whether a worker of a server passes its logs on; it need not where the server reads the same directory."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> Setup:
        given: dict[str, Any] = json.loads(text)
        return Setup(
            work=_work(given["work"]),
            clickhouse=ClickHouseTarget.of(given["clickhouse"]) if given["clickhouse"] else None,
            log_directory=Path(given["log_directory"]),
            allowed_modules=tuple(given["allowed_modules"]),
            imports=tuple(given["imports"]),
            directory=given["directory"],
            memory_bytes=given["memory_bytes"],
            sends_logs=given["sends_logs"],
        )


def _work(given: dict[str, Any]) -> WorkTarget:
    if "url" in given:
        return ServerTarget(**given)
    options = tuple((name, value) for name, value in given.pop("options"))
    return PostgresTarget(**given, options=options)


@dataclass(frozen=True)
class Duty:
    """What a process is asked to do."""

    worker_id: int
    queues: tuple[str, ...]
    concurrency: int
    lease_seconds: float
    task_timeout_seconds: float
    grace_seconds: float
    log_directory: Path
    isolate: bool = False
    max_tasks: int | None = None
    drain: bool = False
    called_by: str | None = None
    """The queue of SQS whose messages say when to claim; None: whenever there is room."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> Duty:
        given: dict[str, Any] = json.loads(text)
        given["queues"] = tuple(given["queues"])
        given["log_directory"] = Path(given["log_directory"])
        return Duty(**given)
