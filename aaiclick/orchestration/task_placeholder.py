"""Errors for uses of a Task that need its value, before the task has run.

Python's own errors would name Task objects, and `if task:` would always be true.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from aaiclick.errors import PlaceholderAttributeError, PlaceholderError

CONDITION = "Put the decision into a task: a @task that receives {call} as an argument and returns the tasks to run."
LOOP = "Loop inside a task: a @task that receives {call} as an argument."
COMPUTE = "Pass it on: write a @task with a parameter for the result of {call}, and compute there."
TEXT = "Pass {call} as an argument to a task, and build the text there."
UNPACK = (
    "Annotate the result of {function}() as a tuple (-> tuple[int, str]), or pass {call} on and unpack it in a @task."
)


def refuse(use: str, remedy: str) -> Callable[..., NoReturn]:
    """Method that raises PlaceholderError; `use` completes the sentence 'so its value cannot be …'."""

    def method(self: Placeholder, *_: object, **__: object) -> NoReturn:
        raise self.make_error(use, remedy)

    return method


class Placeholder:
    """Operators and protocols that need the value of a result."""

    __slots__ = ()
    name: str
    submitted: bool

    def make_error(self, use: str, remedy: str) -> PlaceholderError:
        function = self.name.rpartition(".")[2]
        return PlaceholderError(
            f"{function}(…) is a task that has not run yet, so its value cannot be {use} here.",
            remedy=remedy.format(call=f"{function}(…)", function=function)
            + f" To call the function at once, use {function}.function(…).",
        )

    def __bool__(self) -> bool:
        if self.submitted:
            return True
        raise self.make_error("tested as a condition", CONDITION)

    def __eq__(self, other: object) -> bool:
        if self is other or self.submitted or self._is_compared_as_task(other) or is_internal_caller():
            return self is other
        raise self.make_error("compared", CONDITION)

    def _is_compared_as_task(self, other: object) -> bool:
        """Whether a comparison with another value asks if both are the same task."""
        raise NotImplementedError

    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[object]:
        raise self.make_error("iterated or unpacked", f"{LOOP} {UNPACK}")

    def __format__(self, format_spec: str) -> str:
        if self.submitted:
            return format(repr(self), format_spec)
        raise self.make_error("used in an f-string", TEXT)

    def __str__(self) -> str:
        if self.submitted or is_internal_caller():
            return repr(self)
        raise self.make_error("printed or converted to text", TEXT)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # protocols of Python and libraries
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        own_field = f" The {name} of the task itself is {{function}}.task(…).{name}."
        remedy = COMPUTE + own_field if isinstance(getattr(type(self), name, None), OwnField) else COMPUTE
        error = self.make_error(f"used with .{name}", remedy)
        raise PlaceholderAttributeError(error.what, remedy=error.remedy)

    __lt__ = __le__ = __gt__ = __ge__ = refuse("compared", CONDITION)
    __contains__ = refuse("searched with 'in'", CONDITION)
    __len__ = refuse("measured with len()", COMPUTE)
    __getitem__ = refuse("indexed", COMPUTE)
    __setitem__ = __delitem__ = refuse("changed", COMPUTE)
    __aiter__ = __reversed__ = refuse("iterated", LOOP)
    __enter__ = __aenter__ = refuse("used in a 'with' statement", COMPUTE)
    __exit__ = __aexit__ = refuse("used in a 'with' statement", COMPUTE)
    __call__ = refuse("called", COMPUTE)
    __await__ = refuse("awaited", "A worker runs it after the job is submitted. " + COMPUTE)
    __int__ = __float__ = __complex__ = __index__ = refuse("converted to a number", COMPUTE)
    __round__ = __trunc__ = __floor__ = __ceil__ = refuse("converted to a number", COMPUTE)
    __neg__ = __pos__ = __abs__ = __invert__ = refuse("used in a computation", COMPUTE)
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse("used in a computation", COMPUTE)
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = refuse("used in a computation", COMPUTE)
    __divmod__ = __rdivmod__ = refuse("used in a computation", COMPUTE)
    __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = refuse("used in a computation", COMPUTE)
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = refuse("used in a computation", COMPUTE)


def is_internal_caller() -> bool:
    """Whether a module of aaiclick called the function that calls this one."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith("aaiclick.")  # pyright: ignore[reportPrivateUsage]


class OwnField:
    """Field of a task that user code may read only after the submission: before, it means a field of the value."""

    def __init__(self, name: str, slot: Any) -> None:
        self._name, self._slot = name, slot

    def __get__(self, task: Any, owner: type | None = None) -> Any:
        if task is None:
            return self
        if not task.submitted and not is_internal_caller():
            raise AttributeError(self._name)  # Python calls __getattr__, which explains it
        return self._slot.__get__(task, owner)

    def __set__(self, task: Any, value: object) -> None:
        self._slot.__set__(task, value)
