"""Errors of the model in the words of the file: which field, what is wrong with it, what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from aaiclick.catalog.dags import model
from aaiclick.catalog.dags.tree import Node, Path, field_of, locate
from aaiclick.catalog.errors import Problem
from aaiclick.data.errors import nearest

_PATTERNS = {
    model.NAME: "Use lower-case letters, digits, _ and -, at most 63, beginning with a letter.",
    model.DATASET_NAME: "Use lower-case letters, digits and _, at most 63, beginning with a letter.",
    model.RUNTIME: "Use pool, dispatcher, lambda or ecs_NAME.",
    model.IDLE_TIMEOUT: "Use never, 0, or a number with a unit: 30s, 5m, 2h, 1d.",
    model.NAME_OF_A_GRANT: "A secret is the name of one that the organisation was granted, never a value, variable or "
    "file. An admin sets it ('aaiclick secrets set NAME'); write secrets: [NAME].",
}
_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of names to values",
    "model_attributes_type": "a mapping of names to values",
}
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_SOURCES = ["cron", "webhook", "manual", "always_on"]


def problems_of(error: ValidationError, root: Node, base: Path, shape: type[BaseModel]) -> list[Problem]:
    """Every error of a model with its place; `base` is where in the file the model's data begins."""
    seen: set[tuple[str, Path]] = set()
    problems: list[Problem] = []
    for detail in error.errors(include_url=False):
        path = (*base, *detail["loc"])
        absent = detail["type"] == "missing"
        place, found = locate(root, path, key=detail["type"] == "extra_forbidden")
        # A value that fits none of several forms has an error for each form; the first says enough.
        several = len(found) < len(path) - absent and detail["type"] not in ("schedule", "zone")
        if several and ("", found) in seen:
            continue
        seen.add(("", found) if several else (detail["type"], found))
        shown = (*(found if len(found) >= len(base) else base), path[-1]) if absent else found
        what, remedy = _said(detail, shape)
        problems.append(Problem(place, field_of(shown), what, remedy))
    return problems


def _said(detail: ErrorDetails, shape: type[BaseModel]) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _KINDS:
        return f"{_shown(detail['input'])} is not {_KINDS[kind]}.", _hint(kind, detail["input"])
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"{_shown(detail['input'])} is out of range.", f"It must be {words} {context[key]}."
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(detail, shape)
    return f"{_sentence(detail['msg'])}", str(context.get("remedy", ""))


def _sentence(text: str) -> str:
    first = text.split(" ")[0]
    start = text if "_" in first else text[:1].upper() + text[1:]
    return start + ("" if text.endswith(".") else ".")


def _hint(kind: str, value: Any) -> str:
    if kind == "bool_type" and value in ("yes", "no", "on", "off"):
        return f"Write {'true' if value in ('yes', 'on') else 'false'}."
    if kind == "string_type" and isinstance(value, int | float):
        return "Put quotes around it."
    if kind == "list_type":
        return "Write it as [a, b], or one item per line after a dash."
    return ""


def _shown(value: Any) -> str:
    if value is None:
        return "Nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "A mapping"
    if isinstance(value, list):
        return "A list"
    return f"{value!r:.60}"


def _missing(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    return f"{detail['loc'][-1]!r} is missing.", f"Add {detail['loc'][-1]}: …"


def _unknown(detail: ErrorDetails, shape: type[BaseModel]) -> tuple[str, str]:
    key = str(detail["loc"][-1])
    return f"There is no key {key!r:.60} here.", nearest(key, _keys(shape, detail["loc"][:-1]))


def _keys(shape: Any, loc: tuple[int | str, ...]) -> list[str]:
    """The keys known at a place of a model."""
    found = shape
    for part in loc:
        found = _inner(found, part)
    return [key for each in _models(found) for key in each.model_fields]


def _inner(shape: Any, part: int | str) -> Any:
    for each in _models(shape):
        if isinstance(part, str) and part in each.model_fields:
            return each.model_fields[part].annotation
        if isinstance(part, str) and part in (each.__name__, _tag(each)):
            return each
    return shape


def _tag(shape: type[BaseModel]) -> str | None:
    kind = shape.model_fields.get("kind")
    values = get_args(kind.annotation) if kind else ()
    return values[0] if len(values) == 1 else None


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation mentions, through lists, unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models(part)]


def _literal(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    value, expected = detail["input"], str(detail.get("ctx", {})["expected"])
    if value == "Bulk":
        return "Bulk is not supported.", "Use PerUpdate or PerPartition."
    known = [part.strip(" '") for part in expected.replace(" or ", ",").split(",")]
    remedy = nearest(value, known) if isinstance(value, str) else f"It must be {expected}."
    return f"{_shown(value)} is not possible here.", remedy


def _tagged(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    if detail["type"] == "union_tag_not_found":
        return "'kind' is missing.", f"Add kind: one of {', '.join(_SOURCES)}."
    tag = str(detail.get("ctx", {})["tag"])
    return f"There is no kind {tag!r:.60}.", nearest(tag, _SOURCES)


def _pattern(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    pattern = str(detail.get("ctx", {})["pattern"])
    remedy = _PATTERNS.get(pattern, "Write package.module:function." if ":" in pattern else f"It must match {pattern}.")
    # What may be a secret itself is not repeated.
    shown = "This" if pattern == model.NAME_OF_A_GRANT else _shown(detail["input"])
    return f"{shown} cannot be used here.", remedy


def _length(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    what = "The list" if detail["type"].startswith("too") else "The text"
    if "short" in detail["type"]:
        return f"{what} is empty.", "Write at least one."
    return f"{what} is too long.", f"At most {detail.get('ctx', {}).get('max_length')} fit."


_SPECIAL: dict[str, Callable[[ErrorDetails, type[BaseModel]], tuple[str, str]]] = {
    "missing": _missing,
    "extra_forbidden": _unknown,
    "literal_error": _literal,
    "union_tag_not_found": _tagged,
    "union_tag_invalid": _tagged,
    "string_pattern_mismatch": _pattern,
    "string_too_short": _length,
    "string_too_long": _length,
    "too_short": _length,
    "too_long": _length,
}
