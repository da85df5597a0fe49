"""What a task prints goes to its own log, however many tasks run at once.

`sys.stdout` and `sys.stderr` are replaced once per process by streams that ask a ContextVar whose turn it is. The
variable follows `await` and `asyncio.to_thread`; thread pools and threads that a task starts are taught to follow it
too. The `logging` module writes to the same place. Output outside any task goes where it always went.

A log file is created at the first character, so a silent task costs nothing, and written without a buffer, so that a
crash loses nothing. One file holds all attempts of a task; a line `=== attempt N, TIME ===` begins each. An attempt may
write LIMIT_BYTES; the rest is counted and dropped, and the log says so. Subprocesses write to the worker's own output.
"""

from __future__ import annotations

import contextvars
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
from typing import Any, TextIO, TypeVar

from aaiclick.orchestration.redaction import Redactor
from aaiclick.orchestration.structured import json_handler
from aaiclick.settings import get_settings

T = TypeVar("T")

LIMIT_BYTES = 10_000_000
PIECE_CHARACTERS = 1_000_000

_HEADING = re.compile(r"=== attempt (\d+), ")

_current: contextvars.ContextVar[TaskLog | None] = contextvars.ContextVar("aaiclick_task_log", default=None)


class TaskLog:
    """The log of one attempt; safe between threads.

    Each write goes to the file at once, without a buffer: what was written before a crash or a kill is there.
    """

    __slots__ = ("_attempt", "_dropped", "_handle", "_lock", "_lost", "_written", "closed", "path", "redactor")

    def __init__(self, path: Path, attempt: int) -> None:
        self.path = path
        self.closed = False
        """Whether the attempt is over: later output is not its own."""
        self._attempt = attempt
        self._handle: int | None = None
        self._lock = threading.Lock()
        self._written = 0
        self._dropped = 0
        self._lost = False
        self.redactor = Redactor()

    @property
    def is_complete(self) -> bool:
        """Whether everything written so far is in the file: no disk was full, no limit was reached."""
        return not self._lost and not self._dropped

    def write(self, text: str) -> None:
        """Very long texts are written in pieces, to bound the memory for their encoded form."""
        text = self.redactor.redact(text)
        for start in range(0, len(text), PIECE_CHARACTERS):
            data = text[start : start + PIECE_CHARACTERS].encode(errors="backslashreplace")
            with self._lock:
                try:
                    self._write(data)
                except OSError:
                    self._lose()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            try:
                self._close()
            except OSError:
                self._lose()

    def _write(self, data: bytes) -> None:
        if self._written >= LIMIT_BYTES or self._lost or self.closed:
            self._dropped += len(data)
            return
        room = LIMIT_BYTES - self._written
        self._written += len(data)
        self._dropped += max(0, len(data) - room)
        if self._handle is None:
            self._handle = self._open()
            _write_all(self._handle, self._heading(self._handle) + data[:room])
        else:
            _write_all(self._handle, data[:room])

    def _close(self) -> None:
        if self._handle is None:
            return
        if self._dropped:
            notice = f"\n=== {self._dropped} bytes past the limit of {LIMIT_BYTES} were dropped ===\n"
            _write_all(self._handle, notice.encode())
        os.close(self._handle)
        self._handle = None

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            return os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self.path, flags, 0o600)

    def _heading(self, handle: int) -> bytes:
        """The first line of an attempt; an earlier attempt may have ended within a line."""
        size = os.fstat(handle).st_size
        line_end = b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return line_end + f"=== attempt {self._attempt}, {moment} ===\n".encode()

    def _lose(self) -> None:
        """A full disk costs a task the rest of its log, never its outcome."""
        self._lost = True
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
        self._handle = None


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def current_log() -> TaskLog | None:
    """The log of the attempt that this context belongs to, while it lasts."""
    log = _current.get()
    return None if log is None or log.closed else log


class _Divided(io.TextIOBase):
    """A standard stream that writes to the log of the task whose context it is called in."""

    def __init__(self, original: TextIO) -> None:
        self._original = original

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        return "utf-8"

    def write(self, text: str) -> int:
        log = _current.get()
        if log is not None and not log.closed:
            log.write(text)
        else:  # threads that outlive their attempt still know its secrets
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


LIBRARIES = frozenset(
    {
        "aiohttp", "alembic", "asyncio", "asyncpg", "boto3", "botocore", "chdb", "clickhouse_connect", "concurrent",
        "fastapi", "httpcore", "httpx", "opentelemetry", "prometheus_client", "pyarrow", "s3transfer", "sqlalchemy",
        "sqlglot", "starlette", "urllib3", "uvicorn",
    }
)  # fmt: skip
"""Top-level loggers of the libraries that aaiclick uses itself."""


def _is_of_the_task(record: logging.LogRecord) -> bool:
    """Whether a record belongs in a task's log: one of a library does if the task has set the level of its logger."""
    library = record.name.partition(".")[0]
    return library not in LIBRARIES or logging.getLogger(library).level != logging.NOTSET


class _TaskHandler(logging.Handler):
    """Sends records to the log of the current task."""

    def emit(self, record: logging.LogRecord) -> None:
        log = current_log()
        if log is not None:
            try:
                log.write(self.format(record) + "\n")
            except Exception:  # noqa: BLE001  (logging's own contract: a handler never raises)
                self.handleError(record)


def set_log(log: TaskLog | None) -> contextvars.Token[TaskLog | None]:
    """Have the output of this context, and of all it starts, go to `log`."""
    return _current.set(log)


@contextmanager
def captured_output() -> Generator[None]:
    """Divide the standard streams and logging of this process between its tasks."""
    stdout, stderr = sys.stdout, sys.stderr
    handler = _TaskHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_is_of_the_task)
    root = logging.getLogger()
    if root.level == logging.WARNING:  # Python's own default, and no choice of anybody's
        root.setLevel(logging.INFO)
    sys.stdout, sys.stderr = _Divided(stdout), _Divided(stderr)
    root.addHandler(handler)
    beside = json_handler(stderr) if get_settings().log_format == "json" else None
    if beside is not None:
        root.addHandler(beside)
    threading.Thread.start = _start_in_context
    ThreadPoolExecutor.submit = _submit_in_context
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        root.removeHandler(handler)
        if beside is not None:
            root.removeHandler(beside)
        threading.Thread.start = _plain_start
        ThreadPoolExecutor.submit = _plain_submit


_plain_start = threading.Thread.start
_plain_submit = ThreadPoolExecutor.submit


def _start_in_context(self: threading.Thread) -> None:
    """`Thread.start`, with the new thread in a copy of the starter's context; a pool's threads serve many tasks."""
    if _current.get() is not None and not _serves_a_pool(self):
        context, run = contextvars.copy_context(), self.run
        self.run = lambda: context.run(run)
    _plain_start(self)


def _serves_a_pool(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    return getattr(target, "__module__", "") == "concurrent.futures.thread"


def _submit_in_context(
    pool: ThreadPoolExecutor, function: Callable[..., T], /, *arguments: Any, **named: Any
) -> Future[T]:
    """`ThreadPoolExecutor.submit`, with the work in a copy of the submitter's context."""
    if _current.get() is not None:
        return _plain_submit(pool, contextvars.copy_context().run, function, *arguments, **named)
    return _plain_submit(pool, function, *arguments, **named)


class Excerpt:
    """Of a log that comes in pieces, what one attempt wrote, line by line; all of it as it comes, if none is named."""

    def __init__(self, attempt: int | None = None) -> None:
        self._attempt = attempt
        self._current = 0
        self._unfinished = ""

    @property
    def is_over(self) -> bool:
        """Whether a later attempt has begun."""
        return self._attempt is not None and self._current > self._attempt

    def feed(self, piece: str) -> str:
        if self._attempt is None:
            return piece
        lines = (self._unfinished + piece).splitlines(keepends=True)
        self._unfinished = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        return "".join(line for line in lines if self._has(line))

    def rest(self) -> str:
        """The last line, which may have no end."""
        return self._unfinished if self._has(self._unfinished) else ""

    def _has(self, line: str) -> bool:
        if heading := _HEADING.match(line):
            self._current = int(heading[1])
        return self._current == self._attempt
