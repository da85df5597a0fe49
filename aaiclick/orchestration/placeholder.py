"""Errors for uses of a Task that need its value, before the task has run.

Python's own errors would name Task objects, and `if task:` would always be true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from aaiclick.errors import PlaceholderAttributeError, PlaceholderError

PLAIN_TYPES = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)

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
        if isinstance(other, PLAIN_TYPES) and not self.submitted:
            raise self.make_error("compared", CONDITION)
        return self is other

    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[object]:
        raise self.make_error("iterated or unpacked", f"{LOOP} {UNPACK}")

    def __format__(self, format_spec: str) -> str:
        if self.submitted:
            return format(repr(self), format_spec)
        raise self.make_error("used in an f-string", TEXT)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # protocols of Python and libraries
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        error = self.make_error(f"used with .{name}", COMPUTE)
        raise PlaceholderAttributeError(error.what, remedy=error.remedy)

    __lt__ = __le__ = __gt__ = __ge__ = refuse("compared", CONDITION)
    __contains__ = refuse("searched with 'in'", CONDITION)
    __len__ = refuse("measured with len()", COMPUTE)
    __getitem__ = refuse("indexed", COMPUTE)
    __call__ = refuse("called", COMPUTE)
    __await__ = refuse("awaited", "A worker runs it after the job is submitted. " + COMPUTE)
    __int__ = __float__ = __index__ = __round__ = refuse("converted to a number", COMPUTE)
    __neg__ = __pos__ = __abs__ = __invert__ = refuse("used in a computation", COMPUTE)
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse("used in a computation", COMPUTE)
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = refuse("used in a computation", COMPUTE)
    __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = refuse("used in a computation", COMPUTE)
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = refuse("used in a computation", COMPUTE)
