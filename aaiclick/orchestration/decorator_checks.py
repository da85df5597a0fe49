"""Checks of functions at decoration: workers find a function by its module and name."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from types import EllipsisType
from typing import Any, cast

from aaiclick.errors import SubmitError

TOP_LEVEL = "Define the function at the top level of a module: workers import it by its name."

WRAPPED = "If it comes from a decorator below, write @functools.wraps(FUNCTION) above its inner function."


def check_function(function: object, decorator: str, *, is_local_allowed: bool = False) -> None:
    """Raise SubmitError if a function could not be run by its name; local functions only if they are allowed."""
    if other := getattr(type(function), "decorator", None):
        name = cast("Any", function).__name__
        raise _refusal(decorator, f"{name}, which has {other}", "A function has one of @task and @job: remove one.")
    if isinstance(function, staticmethod | classmethod):
        raise _refusal(decorator, f"the method {cast('Any', function).__qualname__}", TOP_LEVEL)
    name = getattr(function, "__qualname__", None)
    if not callable(function) or not isinstance(name, str) or inspect.isclass(function):
        what = f"the class {name}" if inspect.isclass(function) else f"a value of type {type(function).__name__}"
        raise _refusal(decorator, what, f"Write {decorator} or {decorator}(OPTION=VALUE) above a function.")
    if name.endswith("<lambda>"):
        raise _refusal(decorator, "a lambda, which has no name", "Define it with 'def' at the top level of a module.")
    if "<locals>" in name and not is_local_allowed:
        remedy = WRAPPED if _is_wrapper(function) else TOP_LEVEL
        raise _refusal(decorator, f"{name.rpartition('.')[2]}, which is defined inside another function", remedy)
    if "." in name.rpartition("<locals>.")[2]:
        raise _refusal(decorator, f"the method {name}", TOP_LEVEL)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _refusal(decorator, f"{name}, which yields values", "Return a list, or an Object, and not a generator.")


def _is_wrapper(function: Callable[..., object]) -> bool:
    """Whether a function calls another one that a decorator has received."""
    cells = getattr(function, "__closure__", None) or ()
    return any(callable(cell.cell_contents) for cell in cells)


def _refusal(decorator: str, what: str, remedy: str) -> SubmitError:
    return SubmitError(f"{decorator} cannot be applied to {what}.", remedy=remedy)


def check_keywords(
    keywords: Mapping[str, object], options: Collection[str], decorator: str, elsewhere: str = ""
) -> None:
    """Raise SubmitError for an unknown option, with the one that was probably meant."""
    for name in keywords:
        if name in options:
            continue
        close = difflib.get_close_matches(name, options, 1)
        remedy = f"Did you mean {close[0]!r}?" if close else f"Its options are {', '.join(sorted(options))}."
        raise SubmitError(f"{decorator} has no option {name!r}.", remedy=elsewhere or remedy)


def read_signature(function: Callable[..., object]) -> inspect.Signature:
    """Signature of a function, with annotations as types where they can be resolved."""
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001  (an annotation may be any code)
        return inspect.signature(function)


def check_keyword_arguments(function: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Raise SubmitError for arguments that a function does not have."""
    try:
        inspect.signature(function).bind_partial(**arguments)
    except TypeError as error:
        raise describe_call_error(function, error) from None
    except ValueError:  # a built-in function without a signature
        return


def describe_call_error(function: Callable[..., object], error: TypeError) -> SubmitError:
    """Error for arguments that do not match a function's signature."""
    name = getattr(function, "__name__", repr(function))
    reason = str(error).removeprefix(f"{name}() ")
    return SubmitError(
        f"{name}() has wrong arguments: {reason}.", remedy=f"Its signature is {name}{read_signature(function)}."
    )


def describe_function(function: Callable[..., object]) -> str:
    """File and line of a function, in the format of a traceback."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return f"  {function!r}"
    return f'  File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_qualname}'


def count_items(function: Callable[..., object]) -> int:
    """Number of items of the tuple that a function is annotated to return; 0 for other annotations."""
    try:
        returned = typing.get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001  (an annotation may be any code)
        return 0
    items = typing.get_args(returned) if typing.get_origin(returned) is tuple else ()
    return 0 if any(isinstance(item, EllipsisType) for item in items) else len(items)
