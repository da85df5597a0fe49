"""PendingResult: a coroutine that explains a forgotten `await`."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NoReturn, ParamSpec, TypeVar

from aaiclick.data.errors import NotAwaitedError

P = ParamSpec("P")
T = TypeVar("T")


class NotAwaitedWarning(RuntimeWarning):
    """A call did nothing, since its result was never awaited."""


def _find_line_of_caller() -> tuple[str, int]:
    """File and line of the innermost call outside of aaiclick; the number of its wrappers differs by function."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame.f_globals.get("__name__", "").startswith("aaiclick.") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class PendingResult(Coroutine[Any, Any, T]):
    """Result of a call that runs when it is awaited; any other use raises NotAwaitedError.

    If it is dropped, NotAwaitedWarning names the line of the call.
    """

    dropped = "{call} did nothing: its result is not awaited."
    remedy = "Write (await {call}), or use aaiclick.data.sync, which needs no await."

    def __init__(self, coroutine: Coroutine[object, object, T], function: str) -> None:
        self._coroutine = coroutine
        self._function = function
        self._is_used = False
        self._location = _find_line_of_caller()

    def __del__(self) -> None:
        if not self._is_used:
            self._coroutine.close()
            text = f"{self.dropped} {self.remedy}".format(call=f"{self._function}(…)")
            warnings.warn_explicit(text, NotAwaitedWarning, *self._location)

    def __await__(self) -> Generator[Any, Any, T]:
        self._is_used = True
        return self._coroutine.__await__()

    def send(self, value: object) -> Any:
        self._is_used = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._is_used = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._is_used = True
        self._coroutine.close()

    def _refuse_use(self, *_: object) -> NoReturn:
        self.close()
        raise NotAwaitedError(
            f"The result of {self._function}(…) is used without await.",
            remedy=self.remedy.format(call=f"{self._function}(…)"),
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "cr_")):
            raise AttributeError(name)
        self._refuse_use()

    __getitem__ = __iter__ = __len__ = __contains__ = __float__ = __int__ = __bool__ = _refuse_use
    __add__ = __sub__ = __mul__ = __truediv__ = __radd__ = __rsub__ = __rmul__ = __lt__ = __gt__ = _refuse_use

    def __repr__(self) -> str:
        return f"<{self._function}(…), not awaited>"


def explain_await(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let the coroutine of a function explain a forgotten `await`."""

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        return PendingResult(function(*args, **named), function.__name__)

    return call
