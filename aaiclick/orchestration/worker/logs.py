"""Task logs: the output of each task goes to its own log, also when many tasks run concurrently.

`sys.stdout` and `sys.stderr` are replaced once per process by streams that look up the current task in a ContextVar.
The variable follows `await` and `asyncio.to_thread`; `Thread.start` and `ThreadPoolExecutor.submit` are patched to
follow it too. The `logging` module writes to the same log. Output outside of tasks is unchanged.

A log file is created at the first write and written without a buffer, so that a crash loses nothing. One file holds all
attempts of a task; each begins with a line `=== attempt N, TIME ===`. An attempt may write LIMIT_BYTES; the rest is
dropped, and the log says how much. Subprocesses write to the worker's own output.
"""

from __future__ import annotations

import contextvars
import functools
import io
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from aaiclick.orchestration.json_logging import make_json_handler
from aaiclick.orchestration.secret_redaction import Redactor
from aaiclick.settings import get_settings

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")

LIMIT_BYTES = 10_000_000
CHUNK_CHARACTERS = 1_000_000

ATTEMPT_HEADING = re.compile(r"^=== attempt (\d+), .*===\n", re.MULTILINE)

_current: contextvars.ContextVar[TaskLog | None] = contextvars.ContextVar("aaiclick_task_log", default=None)


class TaskLog:
    """The log of one attempt; thread-safe. Writes are unbuffered, so that a crash loses nothing."""

    __slots__ = ("_attempt", "_dropped", "_file", "_handle", "_has_failed", "_lock", "_written", "closed", "redactor")

    def __init__(self, file: str | Path, attempt: int) -> None:
        self._file = file  # a Path is built only if it is needed: most tasks print nothing
        self.closed = False
        """Whether the attempt is over; later output does not belong to it."""
        self._attempt = attempt
        self._handle: int | None = None
        self._lock = threading.Lock()
        self._written = 0
        self._dropped = 0
        self._has_failed = False
        self.redactor = Redactor()

    @property
    def path(self) -> Path:
        return Path(self._file)

    @property
    def is_complete(self) -> bool:
        """Whether everything written so far is in the file: no full disk, no limit reached."""
        return not self._has_failed and not self._dropped

    def write(self, text: str) -> None:
        """Write text, in chunks to bound the memory for its encoded form."""
        text = self.redactor.redact(text)
        for start in range(0, len(text), CHUNK_CHARACTERS):
            data = text[start : start + CHUNK_CHARACTERS].encode(errors="backslashreplace")
            with self._lock:
                try:
                    self._write_bytes(data)
                except OSError:
                    self._stop_writing()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            try:
                self._close_file()
            except OSError:
                self._stop_writing()

    def _write_bytes(self, data: bytes) -> None:
        if self._written >= LIMIT_BYTES or self._has_failed or self.closed:
            self._dropped += len(data)
            return
        remaining = LIMIT_BYTES - self._written
        self._written += len(data)
        self._dropped += max(0, len(data) - remaining)
        if self._handle is None:
            self._handle = self._open_file()
            _write_all(self._handle, self._make_heading(self._handle) + data[:remaining])
        else:
            _write_all(self._handle, data[:remaining])

    def _close_file(self) -> None:
        if self._handle is None:
            return
        if self._dropped:
            notice = f"\n=== {self._dropped} bytes past the limit of {LIMIT_BYTES} were dropped ===\n"
            _write_all(self._handle, notice.encode())
        os.close(self._handle)
        self._handle = None

    def _open_file(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            return os.open(self._file, flags, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._file, flags, 0o600)

    def _make_heading(self, handle: int) -> bytes:
        """First line of an attempt; starts a new line if the previous attempt did not end its last one."""
        size = os.fstat(handle).st_size if self._attempt > 1 else 0
        line_end = b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""
        return line_end + f"=== attempt {self._attempt}, {_format_second(int(time.time()))} ===\n".encode()

    def _stop_writing(self) -> None:
        """Stop writing after an error such as a full disk, which must not change the task's outcome."""
        self._has_failed = True
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
        self._handle = None


@functools.lru_cache(maxsize=1)
def _format_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def current_log() -> TaskLog | None:
    """The log of the current attempt; None outside of attempts and after their end."""
    log = _current.get()
    return None if log is None or log.closed else log


class _TaskStream(io.TextIOBase):
    """Standard stream that writes to the log of the current task."""

    def __init__(self, original: TextIO) -> None:
        self._original = original

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        return "utf-8"

    def write(self, text: str) -> int:
        log = _current.get()
        if log is not None and not log.closed:
            log.write(text)
        else:  # threads that outlive their attempt may still print its secrets
            self._original.write(text if log is None else log.redactor.redact(text))
        return len(text)

    def flush(self) -> None:
        if current_log() is None:
            self._original.flush()

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._original.fileno()

    def writable(self) -> bool:
        return True

    @functools.cached_property
    def buffer(self) -> _TaskBuffer:
        return _TaskBuffer(self)


class _TaskBuffer(io.RawIOBase):
    """`sys.stdout.buffer`: bytes that are not UTF-8 are escaped."""

    def __init__(self, stream: _TaskStream) -> None:
        self._stream = stream

    def write(self, data: Buffer) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        content = bytes(data)
        self._stream.write(content.decode(errors="backslashreplace"))
        return len(content)

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True


LIBRARIES = frozenset(
    {
        "aiohttp", "alembic", "asyncio", "asyncpg", "boto3", "botocore", "chdb", "clickhouse_connect", "concurrent",
        "fastapi", "httpcore", "httpx", "opentelemetry", "prometheus_client", "pyarrow", "s3transfer", "sqlalchemy",
        "sqlglot", "starlette", "urllib3", "uvicorn",
    }
)  # fmt: skip
"""Top-level loggers of the libraries that aaiclick uses itself."""


def _belongs_to_task(record: logging.LogRecord) -> bool:
    """Whether a record belongs in a task's log; one of a library does if the task set the level of its logger."""
    library = record.name.partition(".")[0]
    return library not in LIBRARIES or logging.getLogger(library).level != logging.NOTSET


class _TaskHandler(logging.Handler):
    """Writes records to the log of the current task."""

    def emit(self, record: logging.LogRecord) -> None:
        log = current_log()
        if log is not None:
            try:
                log.write(self.format(record) + "\n")
            except Exception:  # noqa: BLE001  (logging's own contract: a handler never raises)
                self.handleError(record)


def set_log(log: TaskLog | None) -> contextvars.Token[TaskLog | None]:
    """Send the output of this context, and of tasks and threads that it starts, to `log`."""
    return _current.set(log)


@contextmanager
def captured_output() -> Generator[None]:
    """Route the standard streams and logging of this process to the logs of its tasks."""
    stdout, stderr = sys.stdout, sys.stderr
    handler = _TaskHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_belongs_to_task)
    root = logging.getLogger()
    if root.level == logging.WARNING:  # Python's default, not set by anyone
        root.setLevel(logging.INFO)
    sys.stdout, sys.stderr = _TaskStream(stdout), _TaskStream(stderr)
    root.addHandler(handler)
    json_handler = make_json_handler(stderr) if get_settings().log_format == "json" else None
    if json_handler is not None:
        root.addHandler(json_handler)
    threading.Thread.start = _start_in_context
    ThreadPoolExecutor.submit = _submit_in_context
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        root.removeHandler(handler)
        if json_handler is not None:
            root.removeHandler(json_handler)
        threading.Thread.start = _original_start
        ThreadPoolExecutor.submit = _original_submit


_original_start = threading.Thread.start
_original_submit = ThreadPoolExecutor.submit


def _start_in_context(self: threading.Thread) -> None:
    """`Thread.start` with a copy of the caller's context, except for threads of pools, which serve many tasks."""
    if _current.get() is not None and not _is_pool_thread(self):
        context, run = contextvars.copy_context(), self.run
        self.run = lambda: context.run(run)
    _original_start(self)


def _is_pool_thread(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    return getattr(target, "__module__", "") == "concurrent.futures.thread"


def _submit_in_context(
    pool: ThreadPoolExecutor, function: Callable[..., T], /, *arguments: object, **keywords: object
) -> Future[T]:
    """`ThreadPoolExecutor.submit` with a copy of the caller's context."""
    if _current.get() is not None:
        return _original_submit(pool, contextvars.copy_context().run, function, *arguments, **keywords)
    return _original_submit(pool, function, *arguments, **keywords)


class LastAttempt:
    """Number of the last attempt in a log that arrives in chunks; 0: none."""

    def __init__(self) -> None:
        self.number = 0
        self._unfinished = ""

    def feed(self, chunk: str) -> None:
        text = self._unfinished + chunk
        for heading in ATTEMPT_HEADING.finditer(text):
            self.number = int(heading[1])
        self._unfinished = text.rpartition("\n")[2]


class LogExcerpt:
    """Filter for the lines of one attempt in a log that arrives in chunks; without an attempt, passes everything."""

    def __init__(self, attempt: int | None = None) -> None:
        self._attempt = attempt
        self._current = 0
        self._unfinished = ""

    @property
    def is_finished(self) -> bool:
        """Whether a later attempt has started."""
        return self._attempt is not None and self._current > self._attempt

    def feed(self, chunk: str) -> str:
        if self._attempt is None:
            return chunk
        lines = (self._unfinished + chunk).splitlines(keepends=True)
        self._unfinished = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        return "".join(line for line in lines if self._is_included(line))

    def unfinished_line(self) -> str:
        """The last line, if it has no line end yet."""
        return self._unfinished if self._is_included(self._unfinished) else ""

    def _is_included(self, line: str) -> bool:
        if heading := ATTEMPT_HEADING.match(line):
            self._current = int(heading[1])
        return self._current == self._attempt
