"""Errors of the model in the words of the file: which field, what is wrong with it, what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
    model.SECRET_REFERENCE: "A secret is a reference, never the value itself: env:VARIABLE or file:/path.",
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
        shown = (*found, path[-1]) if absent else found
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
        return special(detail, context, shape)
    return f"{_sentence(detail['msg'])}", str(context.get("remedy", ""))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


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


def _missing(detail: ErrorDetails, context: Mapping[str, Any], shape: type[BaseModel]) -> tuple[str, str]:  # noqa:
ARG001 return f"{detail['loc'][-1]!r} is missing.", f"Add {detail['loc'][-1]}: …"


def _unknown(detail: ErrorDetails, context: Mapping[str, Any], shape: type[BaseModel]) -> tuple[str, str]:  # noqa:
ARG001 key = str(detail["loc"][-1]) return f"There is no key {key!r:.60} here.", nearest(key, _keys(shape,
detail["loc"][:-1]))


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
        if isinstance(part, str) and (each.__name__ == part or _tag(each) == part):
            return each
    return shape


def _tag(shape: type[BaseModel]) -> str | None:
    kind = shape.model_fields.get("kind")
    values = getattr(kind.annotation, "__args__", ()) if kind else ()
    return values[0] if len(values) == 1 else None


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation mentions, through lists, unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in getattr(annotation, "__args__", ()) for found in _models(part)]


def _literal(detail: ErrorDetails, context: Mapping[str, Any], shape: type[BaseModel]) -> tuple[str, str]:  # noqa:
ARG001 value, expected = detail["input"], str(context["expected"]) if value == "Bulk": return "Bulk is not
supported.", "Use PerUpdate or PerPartition." known = [part.strip(" '") for part in expected.replace(" or ",
",").split(",")] return f"{_shown(value)} is not possible here.", nearest(value, known) if isinstance(value, str) else
( f"It must be {expected}." )


def _tagged(detail: ErrorDetails, context: Mapping[str, Any], shape: type[BaseModel]) -> tuple[str, str]:  # noqa:
ARG001 if detail["type"] == "union_tag_not_found": return "'kind' is missing.", f"Add kind: one of {',
'.join(_SOURCES)}." return f"There is no kind {_shown(context['tag'])}.", nearest(str(context["tag"]), _SOURCES)


def _pattern(detail: ErrorDetails, context: Mapping[str, Any], shape: type[BaseModel]) -> tuple[str, str]:  # noqa:
ARG001 pattern = str(context["pattern"]) remedy = _PATTERNS.get(pattern, "Write package.module:function." if ":" in
pattern else f"It must match {pattern}.") # What may be a secret itself is not repeated. shown = "This" if pattern ==
model.SECRET_REFERENCE else _shown(detail["input"]) return f"{shown} cannot be used here.", remedy


def _length(detail: ErrorDetails, context: Mapping[str, Any], shape: type[BaseModel]) -> tuple[str, str]:  # noqa:
ARG001 kind = detail["type"] if "short" in kind: return f"{'The list' if kind.startswith('too') else 'The text'} is
empty.", "Write at least one." limit = context.get("max_length", "") return f"{'The list' if kind.startswith('too')
else 'The text'} is too long.", f"At most {limit} fit."


_SPECIAL: dict[str, Callable[[ErrorDetails, Mapping[str, Any], type[BaseModel]], tuple[str, str]]] = {
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
