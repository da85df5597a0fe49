"""Forms of approvals: flat JSON Schemas, made from pydantic models, checked and rendered without them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic_core import SchemaError as InvalidSchemaError

from aaiclick.errors import RequestError, SubmitError

_INVALID_FORM = (AttributeError, KeyError, NameError, TypeError, ValueError, PydanticUserError, InvalidSchemaError)
MAX_FIELDS = 50
MAX_CHOICES = 1_000
"""Maximum number of choices of a form, in all its fields."""

MAX_CHARACTERS = 50_000
"""Maximum length of a form as JSON."""

MAX_PATTERN = 500
MAX_TEXT = 10_000
_TEXTS: dict[str | None, Any] = {None: str, "date": date, "date-time": datetime, "time": time}
_NUMBERS = {"integer": int, "number": float}
_LIMITS = {
    "minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt", "multipleOf": "multiple_of",
    "minLength": "min_length", "maxLength": "max_length", "pattern": "pattern",
}  # fmt: skip

InputType = Literal["text", "number", "checkbox", "date", "datetime-local", "time", "choice"]
_INPUTS: dict[object, InputType] = {
    int: "number", float: "number", bool: "checkbox", date: "date", datetime: "datetime-local", time: "time",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form, for pages."""

    name: str
    label: str
    input_type: InputType
    description: str
    is_required: bool
    default: Any
    choices: Sequence[Any]


class _Answers(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def make_form(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a form; raises SubmitError for fields other than text, numbers, dates and choices."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    fields = {name: _inline(field, definitions) for name, field in schema.get("properties", {}).items()}
    form = {"title": schema.get("title", model.__name__), "type": "object", "properties": fields}
    form["required"] = schema.get("required", [])
    try:
        check_form(form)
        _build_model(form)
    except _INVALID_FORM as error:
        raise SubmitError(
            f"The form {model.__name__} cannot be shown: {error}.",
            remedy="Fields are text, numbers, booleans, dates, times and choices (Literal, Enum), or None.",
        ) from None
    return form


def check_form(form: Mapping[str, Any]) -> None:
    """Refuse a form that takes long to show or to validate, or that is malformed; raises ValueError."""
    fields: object = form.get("properties", {})
    required: object = form.get("required", [])
    if not (isinstance(fields, dict) and isinstance(required, list)) or len(json.dumps(form)) > MAX_CHARACTERS:
        raise ValueError(f"it is malformed, or has more than {MAX_CHARACTERS:,} characters")
    if len(fields) > MAX_FIELDS or "object_type" in fields:  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(f"it has more than {MAX_FIELDS} fields, or one that is called 'object_type'")
    choices = 0
    for name, field in cast("dict[str, object]", fields).items():
        is_reserved = name.startswith("_") or (name.startswith("model_") and hasattr(BaseModel, name))
        if is_reserved or not isinstance(field, dict):
            raise ValueError(f"the field {name!r:.80} is malformed, or its name is reserved")
        choices += _check_field(name, cast("dict[str, Any]", field))
    if choices > MAX_CHOICES:
        raise ValueError(f"its fields have more than {MAX_CHOICES} choices")


def _check_field(name: str, field: Mapping[str, Any]) -> int:
    """The number of choices of a field; raises ValueError."""
    choices = field["enum"] if "enum" in field else [field["const"]] if "const" in field else []
    pattern = field.get("pattern", "")
    if not isinstance(choices, list) or not all(
        isinstance(choice, str | int | float | None) for choice in cast("list[object]", choices)
    ):
        raise ValueError(f"the choices of {name!r:.80} are no list of text and numbers")
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern of {name!r:.80} has more than {MAX_PATTERN} characters")
    if not choices:
        _annotation(field)
    return len(cast("list[object]", choices))


def _inline(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A field with its choices instead of references, and without the alternative null."""
    parts = [field, *(member for member in field.get("anyOf", []) + field.get("allOf", []))]
    merged: dict[str, Any] = {"nullable": True} if {"type": "null"} in parts else {}
    for part in reversed(parts):
        if part != {"type": "null"}:
            merged |= definitions[part["$ref"].rpartition("/")[2]] if "$ref" in part else {}
            merged |= {key: value for key, value in part.items() if key not in ("anyOf", "allOf", "$ref")}
    return merged


def _annotation(field: Mapping[str, Any]) -> Any:
    """The Python type of a field; raises KeyError or TypeError for one that forms do not have."""
    if "enum" in field or "const" in field:
        return Literal[*(field["enum"] if "enum" in field else [field["const"]])]
    match field.get("type"):
        case "boolean":
            return bool
        case "string":
            return _TEXTS[field.get("format")]
        case other:
            return _NUMBERS[cast("str", other)]


def _build_model(form: Mapping[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    required = set(form.get("required", ()))
    for name, field in form.get("properties", {}).items():
        annotation = _annotation(field)
        limits = {keyword: field[limit] for limit, keyword in _LIMITS.items() if limit in field}
        if annotation is str:
            limits.setdefault("max_length", MAX_TEXT)
        limited: Any = Annotated[annotation, Field(**limits)] if limits else annotation
        nullable = limited | None if field.get("nullable") else limited
        fields[name] = (nullable, ... if name in required else field.get("default"))
    return create_model("Form", __base__=_Answers, **fields)


def check_answers(form: Mapping[str, Any] | None, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Validate answers and add defaults; raises RequestError that names the field."""
    try:
        check_form(form or {})
        model = _build_model(form or {})
    except _INVALID_FORM:
        raise RequestError("The form of this approval is invalid.", remedy="Clear its task to ask again.") from None
    try:
        return model.model_validate(dict(answers)).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise RequestError(f"{name}: {first['msg']}.", remedy="Correct the form and send it again.") from None


def has_defaults(form: Mapping[str, Any] | None) -> bool:
    """Whether a form is complete without answers."""
    return not (form or {}).get("required")


def list_fields(form: Mapping[str, Any] | None) -> list[FormField]:
    """Fields of a form for a page; none if the form is invalid."""
    try:
        check_form(form or {})
    except _INVALID_FORM:
        return []
    required = set((form or {}).get("required", ()))
    return [
        FormField(
            name,
            str(field.get("title") or name),
            "choice" if "enum" in field or "const" in field else _INPUTS.get(_annotation(field), "text"),
            str(field.get("description") or ""),
            name in required,
            field.get("default"),
            field.get("enum") or ([field["const"]] if "const" in field else []),
        )
        for name, field in (form or {}).get("properties", {}).items()
    ]


def parse_form_fields(form: Mapping[str, Any] | None, values: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Answers from the fields of a posted page: an empty field is absent, a checkbox is on or absent."""
    answers: dict[str, Any] = {}
    for field in list_fields(form):
        text = values.get(field.name, [""])[0]
        if field.input_type == "checkbox":
            answers[field.name] = bool(text)
        elif field.input_type == "choice" and text:
            answers[field.name] = next((choice for choice in field.choices if str(choice) == text), text)
        elif text or (field.is_required and field.input_type == "text"):
            answers[field.name] = text
    return answers
