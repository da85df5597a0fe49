"""Error texts of tasks: tracebacks without the frames of the executor."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from aaiclick.orchestration.worker.executor import _call_in_thread
from aaiclick.orchestration.worker.failure_outcomes import _format_error
from aaiclick.tracebacks import owner_of


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


def test_frames_of_the_thread_pool_are_left_out() -> None:
    frames = frame_names(error_text(in_threads_of_its_own))
    assert frames == ["broken", "in_threads_of_its_own", "broken"]


def test_wrong_arguments_show_the_signature() -> None:
    text = error_text(broken, odd=1)
    assert text.startswith("broken() has wrong arguments: got an unexpected keyword argument 'odd'.\n")
    assert frame_names(text) == ["broken"]
    assert text.endswith("Its signature is broken() -> None.")


def test_traceback_of_an_own_error_keeps_all_frames() -> None:
    text = error_text(owner_of, filename=None)
    assert "tracebacks.py" in text
    assert text.endswith("has no attribute 'startswith'")


def test_libraries_that_user_code_calls_stay_in_the_traceback() -> None:
    frames = frame_names(error_text(json.loads, s="{"))
    assert frames[-1] == "raw_decode"
