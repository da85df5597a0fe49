"""Checks of arguments by the annotations of public methods: a wrong type is an error that names the argument."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from aaiclick.data.errors import DataTypeError
from aaiclick.data.method_hints import explain_call

T = TypeVar("T", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
Test = Callable[[object], bool]


def _is_named(*names: str) -> Test:
    """Return a test by the name of a class or of its bases; the classes import this module."""
    return lambda value: any(base.__name__ in names for base in type(value).__mro__)


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool | type)


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool | type) and not _is_named("PendingResult")(value)


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | range)


_TESTS: dict[str, tuple[Test, str]] = {
    "str": (lambda value: isinstance(value, str), "a text"),
    "bytes": (lambda value: isinstance(value, bytes), "bytes"),
    "int": (_is_integer, "an integer"),
    "float": (_is_number, "a number"),
    "bool": (_is_named("bool", "bool_"), "True or False"),
    "None": (lambda value: value is None, "None"),
    "type": (lambda value: isinstance(value, type), "a type"),
    "timedelta": (_is_named("timedelta"), "a timedelta"),
    "date": (_is_named("date"), "a date or datetime"),
    "Path": (_is_named("PurePath"), "a Path"),
    "Column": (_is_named("ExpressionMethods"), "an expression"),
    "Object": (_is_named("Object"), "an Object"),
    "S3Access": (_is_named("S3Access"), "an S3Access"),
    "CsvOptions": (_is_named("CsvOptions"), "CsvOptions"),
    "Sequence": (_is_list, "a list"),
    "tuple": (_is_list, "a tuple"),
    "Iterable": (lambda value: isinstance(value, Iterable) and not isinstance(value, str | bytes), "a list"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a dict"),
    "Schema": (lambda value: isinstance(value, Mapping), "a dict"),
    "Callable": (callable, "a function"),
}
"""Test and description of each name in annotations; parameters with another name in theirs are not tested."""

_SHADOWED_COMMAS = re.compile(r"\[[^\[\]]*\]")


def _parse_annotation(annotation: object) -> tuple[tuple[Test, ...], str] | None:
    """Return the tests of an annotation such as `str | Sequence[str] | None`; None if it allows anything."""
    text = str(annotation)
    while (shorter := _SHADOWED_COMMAS.sub("", text)) != text:
        text = shorter
    names = [name.strip() for name in text.split("|")]
    if not all(name in _TESTS for name in names):
        return None
    labels = list(dict.fromkeys(_TESTS[name][1] for name in names))
    described = labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} or {labels[-1]}"
    return tuple(_TESTS[name][0] for name in names), described


class _Parameter:
    """A parameter with its tests."""

    def __init__(self, name: str, method: str, tests: tuple[Test, ...], described: str) -> None:
        self.name, self._method, self._tests, self._described = name, method, tests, described

    def check(self, value: object) -> None:
        if not any(test(value) for test in self._tests):
            raise DataTypeError(f"{self.name} of {self._method}(…) must be {self._described}, not {value!r:.60}.")


def check_arguments(function: F) -> F:
    """Return the function with a check of its arguments by their names and annotations."""
    signature = inspect.signature(function)
    positional: list[_Parameter | None] = []
    by_name: dict[str, _Parameter] = {}
    rest: _Parameter | None = None
    for parameter in signature.parameters.values():
        parsed = None if parameter.annotation is parameter.empty else _parse_annotation(parameter.annotation)
        checked = parsed and _Parameter(parameter.name, function.__name__, *parsed)
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = checked or None
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            positional.append(checked or None)
        if checked and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            by_name[parameter.name] = checked

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        for parameter, value in zip(positional, args, strict=False):
            if parameter is not None:
                parameter.check(value)
        if rest is not None:
            for value in args[len(positional) :]:
                rest.check(value)
        for name, value in named.items():
            if name in by_name:
                by_name[name].check(value)
        try:
            return function(*args, **named)
        except TypeError:
            problem = explain_call(function.__name__, signature, args, named)
            if problem is None:
                raise
            what, _, remedy = problem.partition("\n")
            raise DataTypeError(what, remedy=remedy) from None

    return cast("F", call)


def check_methods(owner: T) -> T:
    """Class decorator: check the arguments of all public methods by their annotations."""
    for name, value in list(vars(owner).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(owner, name, check_arguments(value))
    return owner
