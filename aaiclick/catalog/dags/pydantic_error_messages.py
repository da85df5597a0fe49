"""Pydantic errors as messages for the author of a DAG file: field, problem and remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from aaiclick.catalog.dags import data_tests, freshness, model
from aaiclick.catalog.dags.yaml_tree import Node, Path, format_path, locate_path
from aaiclick.catalog.errors import DagProblem
from aaiclick.data.errors import suggest_name

_PATTERNS = {
    model.NAME: "Use lower-case letters, digits, _ and -, at most 63, beginning with a letter.",
    model.DATASET_NAME: "Use lower-case letters, digits and _, at most 63, beginning with a letter.",
    model.RUNTIME: "Use pool, dispatcher, lambda or ecs_NAME.",
    model.IDLE_TIMEOUT: "Use never, 0, or a number with a unit: 30s, 5m, 2h, 1d.",
    data_tests.COLUMN_REFERENCE: "Write dataset.column.",
    data_tests.PERCENTAGE: "Use a percentage: -50%, 300%.",
    data_tests.LAST_RUNS: "Use last_1_runs to last_30_runs.",
    data_tests.DURATION: "Use a number with a unit: 30s, 5m, 2h, 1d.",
    freshness.TIME_OF_DAY: "Use HH:MM, in quotes.",
    freshness.DAYS: "Use days or ranges of days: mon-fri, or mon,wed.",
    model.GRANTED_NAME: "A secret is the name of one that the organisation was granted, never a value, variable or "
    "file. An admin sets it ('aaiclick secrets set NAME'); write secrets: [NAME].",
}
_EXPECTED_TYPES = {
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


def list_problems(error: ValidationError, root: Node, base: Path, model_type: type[BaseModel]) -> list[DagProblem]:
    """Convert validation errors into problems with file positions.

    `base` is the path of the model's data in the file.
    """
    reported: set[tuple[str, Path]] = set()
    problems: list[DagProblem] = []
    for detail in error.errors(include_url=False):
        path = (*base, *detail["loc"])
        absent = detail["type"] == "missing"
        position, located = locate_path(root, path, key=detail["type"] == "extra_forbidden")
        # A value that matches no variant of a union has one error per variant; the first is enough.
        is_variant = len(located) < len(path) - absent and detail["type"] not in ("schedule", "zone")
        if is_variant and ("", located) in reported:
            continue
        reported.add(("", located) if is_variant else (detail["type"], located))
        field_path = (*(located if len(located) >= len(base) else base), path[-1]) if absent else located
        what, remedy = _describe_error(detail, model_type)
        problems.append(DagProblem(position, format_path(field_path), what, remedy))
    return problems


def _describe_error(detail: ErrorDetails, shape: type[BaseModel]) -> tuple[str, str]:
    error_type, context = detail["type"], detail.get("ctx", {})
    if error_type in _EXPECTED_TYPES:
        return f"{_show_value(detail['input'])} is not {_EXPECTED_TYPES[error_type]}.", _get_hint(
            error_type, detail["input"]
        )
    if error_type in _LIMITS:
        key, phrase = _LIMITS[error_type]
        return f"{_show_value(detail['input'])} is out of range.", f"It must be {phrase} {context[key]}."
    special = _SPECIAL.get(error_type)
    if special is not None:
        return special(detail, shape)
    return f"{_to_sentence(detail['msg'])}", str(context.get("remedy", ""))


def _to_sentence(text: str) -> str:
    first = text.split(" ")[0]
    start = text if "_" in first else text[:1].upper() + text[1:]
    return start + ("" if text.endswith(".") else ".")


def _get_hint(error_type: str, value: object) -> str:
    if error_type == "bool_type" and value in ("yes", "no", "on", "off"):
        return f"Write {'true' if value in ('yes', 'on') else 'false'}."
    if error_type == "string_type" and isinstance(value, int | float):
        return "Put quotes around it."
    if error_type == "list_type":
        return "Write it as [a, b], or one item per line after a dash."
    return ""


def _show_value(value: object) -> str:
    if value is None:
        return "Nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "A mapping"
    if isinstance(value, list):
        return "A list"
    return f"{value!r:.60}"


def _describe_missing(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    return f"{detail['loc'][-1]!r} is missing.", f"Add {detail['loc'][-1]}: …"


def _describe_unknown_key(detail: ErrorDetails, shape: type[BaseModel]) -> tuple[str, str]:
    key = str(detail["loc"][-1])
    return f"There is no key {key!r:.60} here.", suggest_name(key, _list_keys(shape, detail["loc"][:-1]))


def _list_keys(shape: object, loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that a model allows at a path."""
    annotation = shape
    for part in loc:
        annotation = _inner_annotation(annotation, part)
    return [key for model_type in _find_models(annotation) for key in model_type.model_fields]


def _inner_annotation(shape: object, part: int | str) -> object:
    for model_type in _find_models(shape):
        if isinstance(part, str) and part in model_type.model_fields:
            return model_type.model_fields[part].annotation
        if isinstance(part, str) and part in (model_type.__name__, _get_tag(model_type)):
            return model_type
    return shape


def _get_tag(shape: type[BaseModel]) -> str | None:
    field = shape.model_fields.get("kind")
    values = get_args(field.annotation) if field else ()
    return values[0] if len(values) == 1 else None


def _find_models(annotation: object) -> list[type[BaseModel]]:
    """Return the models in an annotation, through lists, unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model_type for part in get_args(annotation) for model_type in _find_models(part)]


def _describe_literal(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    value, expected = detail["input"], str(detail.get("ctx", {})["expected"])
    if value == "Bulk":
        return "Bulk is not supported.", "Use PerUpdate, PerPartition or Coalesce."
    choices = [part.strip(" '") for part in expected.replace(" or ", ",").split(",")]
    remedy = suggest_name(value, choices) if isinstance(value, str) else f"It must be {expected}."
    return f"{_show_value(value)} is not possible here.", remedy


def _describe_union_tag(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    if detail["type"] == "union_tag_not_found":
        return "'kind' is missing.", f"Add kind: one of {', '.join(_SOURCES)}."
    tag = str(detail.get("ctx", {})["tag"])
    return f"There is no kind {tag!r:.60}.", suggest_name(tag, _SOURCES)


def _describe_pattern(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    pattern = str(detail.get("ctx", {})["pattern"])
    remedy = _PATTERNS.get(pattern, "Write package.module:function." if ":" in pattern else f"It must match {pattern}.")
    # The value may be a secret: do not repeat it.
    shown = "This" if pattern == model.GRANTED_NAME else _show_value(detail["input"])
    return f"{shown} cannot be used here.", remedy


def _describe_length(detail: ErrorDetails, _: type[BaseModel]) -> tuple[str, str]:
    what = "The list" if detail["type"].startswith("too") else "The text"
    if "short" in detail["type"]:
        return f"{what} is empty.", "Write at least one."
    return f"{what} is too long.", f"At most {detail.get('ctx', {}).get('max_length')} fit."


_SPECIAL: dict[str, Callable[[ErrorDetails, type[BaseModel]], tuple[str, str]]] = {
    "missing": _describe_missing,
    "extra_forbidden": _describe_unknown_key,
    "literal_error": _describe_literal,
    "union_tag_not_found": _describe_union_tag,
    "union_tag_invalid": _describe_union_tag,
    "string_pattern_mismatch": _describe_pattern,
    "string_too_short": _describe_length,
    "string_too_long": _describe_length,
    "too_short": _describe_length,
    "too_long": _describe_length,
}
