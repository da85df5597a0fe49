"""Forms of parameters: fields made from a JSON Schema, and the arguments of a submitted form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aaiclick.orchestration.parameter_schema_text import describe_type

FIELD_PREFIX = "arg."
"""Prefix of the names of parameters in a form, which has other fields too."""

Widget = Literal["text", "number", "date", "checkbox", "select", "json"]


@dataclass(frozen=True, slots=True)
class FormField:
    """A parameter as a field of a form; `value` is the text that the field shows."""

    name: str
    widget: Widget
    value: str
    type_name: str
    description: str
    is_required: bool
    choices: Sequence[tuple[str, str]] = ()
    """Value and label of the options of a select."""
    limits: Mapping[str, object] | None = None

    @property
    def form_name(self) -> str:
        return FIELD_PREFIX + self.name


def make_fields(schema: Mapping[str, Any], arguments: Mapping[str, object]) -> list[FormField]:
    """Fields of all parameters with the values of `arguments`, or else their defaults."""
    required = schema.get("required", [])
    fields: list[FormField] = []
    for name, parameter in schema.get("properties", {}).items():
        resolved = _resolve(parameter, schema)
        widget = _select_widget(resolved)
        value = arguments[name] if name in arguments else parameter.get("default")
        has_value = name in arguments or "default" in parameter
        fields.append(
            FormField(
                name,
                widget,
                _to_text(value, widget) if has_value else "",
                describe_type(parameter),
                str(parameter.get("description") or resolved.get("description") or ""),
                name in required,
                _list_choices(parameter, resolved, name in required) if widget == "select" else (),
                {html: resolved[key] for html, key in (("min", "minimum"), ("max", "maximum")) if key in resolved},
            )
        )
    return fields


def parse_form(schema: Mapping[str, Any], form: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Arguments of a submitted form, as JSON values; those that cannot be read stay text, which validation refuses.

    An empty field is not passed, unless the parameter is text or has a default that is to be replaced by null.
    """
    arguments: dict[str, object] = {}
    for name, parameter in schema.get("properties", {}).items():
        resolved = _resolve(parameter, schema)
        widget = _select_widget(resolved)
        texts = form.get(FIELD_PREFIX + name)
        if widget == "checkbox":
            arguments[name] = bool(texts)
        elif texts is None:
            continue
        elif texts[0] or (resolved.get("type") == "string" and widget == "text" and not _is_nullable(parameter)):
            arguments[name] = _read_text(texts[0], widget)
        elif _is_nullable(parameter) and parameter.get("default") is not None:
            arguments[name] = None
    return arguments


def _resolve(parameter: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a reference, or of the only member of a union besides null."""
    members = [member for member in parameter.get("anyOf", []) if member.get("type") != "null"]
    schema: Mapping[str, Any] = members[0] if len(members) == 1 else parameter
    if "$ref" in schema:
        return root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
    return schema


def _is_nullable(parameter: Mapping[str, Any]) -> bool:
    return any(member.get("type") == "null" for member in parameter.get("anyOf", []))


def _select_widget(schema: Mapping[str, Any]) -> Widget:
    if "enum" in schema:
        return "select"
    match schema.get("type"):
        case "boolean":
            return "checkbox"
        case "integer" | "number":
            return "number"
        case "string":
            return "date" if schema.get("format") == "date" else "text"
        case _:
            return "json"


def _list_choices(parameter: Mapping[str, Any], schema: Mapping[str, Any], is_required: bool) -> list[tuple[str, str]]:
    choices = [
        (json.dumps(choice), choice if isinstance(choice, str) else json.dumps(choice)) for choice in schema["enum"]
    ]
    return choices if is_required and not _is_nullable(parameter) else [("", "–"), *choices]


def _to_text(value: object, widget: Widget) -> str:
    if widget == "checkbox":
        return "true" if value else ""
    if value is None and widget != "json":
        return ""
    if widget in ("text", "date") and isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) and value else None)


def _read_text(text: str, widget: Widget) -> object:
    if widget in ("text", "date"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
