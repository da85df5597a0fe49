"""PendingResult: a coroutine that explains a forgotten `await`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NoReturn, ParamSpec, TypeVar

from aaiclick.data.errors import NotAwaitedError

P = ParamSpec("P")
T = TypeVar("T")


class PendingResult(Coroutine[Any, Any, T]):
    """Result of a call that runs when it is awaited; any other use raises NotAwaitedError."""

    def __init__(self, coroutine: Coroutine[object, object, T], function: str) -> None:
        self._coroutine = coroutine
        self._function = function

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: object) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def _refuse_use(self, *_: object) -> NoReturn:
        self._coroutine.close()
        raise NotAwaitedError(
            f"The result of {self._function}(…) is used without await.",
            remedy=f"Write (await {self._function}(…)), or use aaiclick.data.sync, which needs no await.",
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
