"""What a supervisor tells its processes, handed down as JSON over a pipe: arguments are seen by others.

Light on purpose: the supervisor imports this and nothing of what runs tasks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import asyncpg

from aaiclick.errors import AaiclickError
from aaiclick.settings import ClickHouseTarget, PostgresTarget

UNFIT = 78
"""Exit code of a process that cannot do what it is asked to, now or later: starting it again is no use."""

GONE = (AaiclickError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""What a connection raises when PostgreSQL restarts, refuses or goes away: never a reason to end."""


@dataclass(frozen=True)
class Setup:
    """Where the databases are, where logs go, and which code may run."""

    postgres: PostgresTarget
    clickhouse: ClickHouseTarget
    log_directory: Path
    allowed_modules: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    directory: str = ""
    memory_bytes: int | None = None
    """The most that each process may use for its data."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> Setup:
        given: dict[str, Any] = json.loads(text)
        options = tuple((name, value) for name, value in given["postgres"].pop("options"))
        return Setup(
            postgres=PostgresTarget(**given["postgres"], options=options),
            clickhouse=ClickHouseTarget(**given["clickhouse"]),
            log_directory=Path(given["log_directory"]),
            allowed_modules=tuple(given["allowed_modules"]),
            imports=tuple(given["imports"]),
            directory=given["directory"],
            memory_bytes=given["memory_bytes"],
        )


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

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> Duty:
        given: dict[str, Any] = json.loads(text)
        given["queues"] = tuple(given["queues"])
        given["log_directory"] = Path(given["log_directory"])
        return Duty(**given)
