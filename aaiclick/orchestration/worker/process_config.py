"""Configuration of worker processes, sent by the supervisor as JSON over a pipe.

Command-line arguments would be visible to other users. This module imports little, since the supervisor loads no code
that runs tasks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint, ServerEndpoint, WorkEndpoint

EXIT_FINISHED = 79
"""Exit code of a process that has finished. Not 0, with which a task could end its process."""
EXIT_STUCK = 80
"""Exit code of a process that is replaced because code of a task with a lost lease does not stop."""
EXIT_MISCONFIGURED = 78
"""Exit code of a process that cannot run with its configuration: it is not restarted."""


def describe_exit(code: int) -> str:
    """Describe an exit code or signal."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True)
class ProcessSetup:
    """Endpoints, log directory and allowed code of worker processes."""

    work: WorkEndpoint
    clickhouse: ClickHouseEndpoint | None
    """None for HTTP workers, which receive it along with claims."""
    log_directory: Path
    allowed_modules: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    directory: str = ""
    memory_bytes: int | None = None
    """Memory limit of each process (RLIMIT_DATA)."""
    sends_logs: bool = True
    """Whether an HTTP worker sends its logs; not needed if the server reads the same directory."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> ProcessSetup:
        fields: dict[str, Any] = json.loads(text)
        return ProcessSetup(
            work=_parse_work(fields["work"]),
            clickhouse=ClickHouseEndpoint.of(fields["clickhouse"]) if fields["clickhouse"] else None,
            log_directory=Path(fields["log_directory"]),
            allowed_modules=tuple(fields["allowed_modules"]),
            imports=tuple(fields["imports"]),
            directory=fields["directory"],
            memory_bytes=fields["memory_bytes"],
            sends_logs=fields["sends_logs"],
        )


def _parse_work(fields: dict[str, Any]) -> WorkEndpoint:
    if "url" in fields:
        return ServerEndpoint(**fields)
    options = tuple((name, value) for name, value in fields.pop("options"))
    return PostgresEndpoint(**fields, options=options)


@dataclass(frozen=True)
class WorkerConfig:
    """Options of a worker process."""

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
    wakeup_queue_url: str | None = None
    """URL of the SQS queue with messages that trigger claims; None: claim whenever there are free slots."""
    reload: bool = False
    """Whether the supervisor replaces the process when its code changes."""
    code_version: str | None = None
    """Name of the version of the user's code; None: its commit and digest."""
    registers_functions: bool = False
    """Whether this process registers the `@job` functions of the imported modules."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> WorkerConfig:
        fields: dict[str, Any] = json.loads(text)
        fields["queues"] = tuple(fields["queues"])
        fields["log_directory"] = Path(fields["log_directory"])
        return WorkerConfig(**fields)
