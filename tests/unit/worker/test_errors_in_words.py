"""What is told of the error of a task: where it came from, not how the task was called."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from aaiclick.orchestration.worker.executor import _describe, _in_thread


def said_of(function: Callable[..., Any], **arguments: Any) -> str:
    """The error of a task that runs in a thread."""
    with ThreadPoolExecutor(1) as pool:
        running = SimpleNamespace(lock=threading.Lock(), thread=None)
        error = pool.submit(_in_thread, running, function, arguments).exception()  # pyright: ignore[reportArgumentType]
    assert error is not None
    return _describe(error)


def places(text: str) -> list[str]:
    """The functions that a traceback goes through."""
    return [line.rpartition(" in ")[2] for line in text.splitlines() if line.startswith('  File "')]


def broken() -> None:
    try:
        int("x")
    except ValueError as error:
        raise KeyError("y") from error


def in_threads_of_its_own() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(broken).result()


def test_it_begins_with_the_code_of_the_task_and_has_its_causes() -> None:
    text = said_of(broken)
    assert places(text) == ["broken", "broken"]
    assert "ValueError: invalid literal" in text
    assert "direct cause" in text
    assert text.endswith("KeyError: 'y'")


def test_what_a_task_calls_is_all_there() -> None:
    found = places(said_of(in_threads_of_its_own))
    assert found[:2] == ["broken", "in_threads_of_its_own"]
    assert (found[-2], found[-1]) == ("run", "broken")


def test_an_error_of_our_own_keeps_its_places() -> None:
    text = said_of(broken, odd=1)
    assert places(text)[-1] == "_in_thread"
    assert "unexpected keyword argument 'odd'" in text
