"""Tracebacks of user code: frames of aaiclick, click, asyncio and the import system are left out.

An exception is a defect of aaiclick if the innermost frame that belongs to no library is in aaiclick; then its
traceback stays complete.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from aaiclick.errors import AaiclickError, UserCodeError

HIDDEN_PACKAGES = ("click", "asyncio", "concurrent", "importlib")
HIDDEN_FILES = ("threading.py", "runpy.py", "contextlib.py", "bdb.py")
CALLING_MODULES = ("aaiclick.orchestration.worker.executor", "concurrent.futures.thread")
OWN_DIRECTORY = str(Path(__file__).parent)


class FrameOwner(Enum):
    """Owner of the code of a frame."""

    AAICLICK = "aaiclick"
    HIDDEN = "hidden"
    """A library that calls user code; its frames say nothing about the error."""
    LIBRARY = "library"
    USER = "user"


@lru_cache(maxsize=1024)
def owner_of(filename: str) -> FrameOwner:
    """Owner of a source file."""
    if filename.startswith("<frozen "):
        return FrameOwner.HIDDEN
    path = os.path.abspath(filename)  # noqa: PTH100  (symbolic links stay: a virtual environment consists of them)
    if path.startswith(OWN_DIRECTORY + os.sep):
        return FrameOwner.AAICLICK
    if path.startswith(_hidden_directories()) or path in _hidden_files():
        return FrameOwner.HIDDEN
    return FrameOwner.LIBRARY if path.startswith(_library_directories()) else FrameOwner.USER


@lru_cache(maxsize=1)
def _hidden_directories() -> tuple[str, ...]:
    specs = (importlib.util.find_spec(name) for name in HIDDEN_PACKAGES)
    origins = (spec.origin for spec in specs if spec is not None and spec.origin is not None)
    return tuple(str(Path(origin).parent) + os.sep for origin in origins)


@lru_cache(maxsize=1)
def _hidden_files() -> frozenset[str]:
    return frozenset(str(Path(sysconfig.get_path("stdlib")) / name) for name in HIDDEN_FILES)


@lru_cache(maxsize=1)
def _library_directories() -> tuple[str, ...]:
    names = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(name + os.sep for name in names)


def is_user_error(error: BaseException) -> bool:
    """Whether user code raised an exception, directly or inside a library that it called."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration | StopAsyncIteration):
        return is_user_error(error.__cause__)  # Python replaced an exception of a coroutine
    owners = [owner_of(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    innermost = next((owner for owner in reversed(owners) if owner in (FrameOwner.USER, FrameOwner.AAICLICK)), None)
    is_syntax_error = isinstance(error, SyntaxError) and owner_of(error.filename or OWN_DIRECTORY) is FrameOwner.USER
    return innermost is FrameOwner.USER or is_syntax_error or (FrameOwner.USER in owners and _is_expected(error))


def _is_expected(error: BaseException) -> bool:
    return isinstance(error, AaiclickError)


def format_error(error: BaseException) -> str:
    """Traceback of an exception, trimmed to user code; complete if it is a defect of aaiclick."""
    is_trimmed = is_user_error(error)
    trace = error.__traceback__ if is_trimmed else _strip_calls(error)
    summary = traceback.TracebackException(type(error), error, trace)
    if is_trimmed:
        _trim(summary, error)
    elif _is_expected(error):
        name = type(error).__name__
        return str(error) if name == "PermanentError" else f"{name}: {error}"
    return "".join(summary.format()).rstrip()


def _strip_calls(error: BaseException) -> TracebackType | None:
    """Traceback without the leading frames that only call the task's function."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in CALLING_MODULES:
        trace = trace.tb_next
    return trace or error.__traceback__


def format_location(error: BaseException, *, below: Path | None = None) -> str:
    """Frames of user code of an exception and its causes, without messages; file names are relative to `below`."""
    summary = traceback.TracebackException.from_exception(error)
    _trim(summary, error)
    if below is not None:
        _shorten_paths(summary, below)
    lines = summary.stack.format()
    if isinstance(error, SyntaxError):
        lines += [line for line in summary.format_exception_only() if line.startswith("  ")]
    return "".join(lines).rstrip()


def _trim(summary: traceback.TracebackException, error: BaseException) -> None:
    """Remove frames of aaiclick and hidden packages from an exception and its causes.

    Frames of libraries stay unless aaiclick raised the error on purpose: then they say nothing about it.
    """
    shown = (FrameOwner.USER,) if isinstance(error, AaiclickError) else (FrameOwner.USER, FrameOwner.LIBRARY)
    summary.stack = traceback.StackSummary.from_list(
        frame for frame in summary.stack if owner_of(frame.filename) in shown
    )
    members: Sequence[BaseException] = getattr(error, "exceptions", ())  # of a group
    pairs = ((summary.__cause__, error.__cause__), (summary.__context__, error.__context__))
    for chained_summary, chained_error in (*pairs, *zip(summary.exceptions or (), members, strict=False)):
        if chained_summary is not None and chained_error is not None:
            _trim(chained_summary, chained_error)


def _shorten_paths(summary: traceback.TracebackException, directory: Path) -> None:
    prefix = str(directory) + os.sep
    for frame in summary.stack:
        frame.filename = frame.filename.removeprefix(prefix)
    if isinstance(filename := getattr(summary, "filename", None), str):
        summary.filename = filename.removeprefix(prefix)


@contextmanager
def report_user_errors(subject: str, remedy: str) -> Generator[None]:
    """Run user code: its exceptions become errors with the location in that code.

    `subject` names the code in the message. Errors of aaiclick keep their class, message and remedy.
    """
    try:
        yield
    except AaiclickError as error:
        if location := format_location(error, below=Path.cwd()):
            error.what = f"{error.what}\n\n{location}\n"
        raise
    except (Exception, SystemExit) as error:
        if not is_user_error(error):
            raise
        location = format_location(error, below=Path.cwd())
        named = "".join(traceback.format_exception_only(error)).rstrip().rpartition("\n")[2]
        raise UserCodeError(f"{subject} raised {named}\n\n{location}\n", remedy=remedy) from error


def escape_text(text: str) -> str:
    """Escape characters that PostgreSQL cannot store, or the outcome would be rejected for ever."""
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
