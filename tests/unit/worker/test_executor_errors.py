"""Error texts of tasks: tracebacks without the frames of the executor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from aaiclick.orchestration.worker.executor import _call_in_thread
from aaiclick.orchestration.worker.outcomes import _format_error


def error_text(function: Callable[..., Any], **arguments: Any) -> str:
    """Error text of a task that runs in a thread."""
    with ThreadPoolExecutor(1) as pool:
        running = SimpleNamespace(lock=threading.Lock(), thread=None)
        error = pool.submit(_call_in_thread, running, function, arguments).exception()  # pyright: ignore[reportArgumentType]
    assert error is not None
    return _format_error(error)


def frame_names(text: str) -> list[str]:
    """Names of the functions in a traceback."""
    return [line.rpartition(" in ")[2] for line in text.splitlines() if line.startswith('  File "')]


def broken() -> None:
    try:
        int("x")
    except ValueError as error:
        raise KeyError("y") from error


def in_threads_of_its_own() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(broken).result()


def test_traceback_starts_in_the_task_and_has_causes() -> None:
    text = error_text(broken)
    assert frame_names(text) == ["broken", "broken"]
    assert "ValueError: invalid literal" in text
    assert "direct cause" in text
    assert text.endswith("KeyError: 'y'")


def test_traceback_has_all_frames_below_the_task() -> None:
    frames = frame_names(error_text(in_threads_of_its_own))
    assert frames[:2] == ["broken", "in_threads_of_its_own"]
    assert (frames[-2], frames[-1]) == ("run", "broken")


def test_traceback_of_an_own_error_keeps_all_frames() -> None:
    text = error_text(broken, odd=1)
    assert frame_names(text)[-1] == "_call_in_thread"
    assert "unexpected keyword argument 'odd'" in text
