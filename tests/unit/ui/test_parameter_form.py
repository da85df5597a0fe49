"""Forms of parameters: from the schema to fields, and from the form back to arguments."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any, Literal

import hypothesis
import pytest
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from aaiclick.orchestration.json_schema_validation import check_arguments
from aaiclick.orchestration.parameters import JobParameters
from aaiclick.server.ui.parameter_form import FIELD_PREFIX, make_fields, parse_form


class Size(Enum):
    SMALL = 1
    BIG = 2


class Region(BaseModel):
    city: str
    radius: int = 3


def report(
    day: date,
    limit: int,
    share: float,
    label: str,
    mode: Literal["fast", "full"],
    size: Size,
    region: Region,
    vendors: list[str],
    note: str | None = None,
    rows: int | None = 7,
    dry_run: bool = False,
) -> None: ...


SCHEMA = JobParameters(report).schema
ARGUMENTS = st.fixed_dictionaries(
    {
        "day": st.dates().map(date.isoformat),
        "limit": st.integers(),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "label": st.text(),
        "mode": st.sampled_from(["fast", "full"]),
        "size": st.sampled_from([1, 2]),
        "region": st.builds(Region, city=st.text()).map(lambda region: region.model_dump()),
        "vendors": st.lists(st.text()),
        "rows": st.none() | st.integers(),
        "dry_run": st.booleans(),
    },
    optional={"note": st.text(min_size=1)},
)


def submit(arguments: dict[str, Any]) -> dict[str, list[str]]:
    """The form as a browser sends it: an unchecked checkbox is absent."""
    fields = make_fields(SCHEMA, arguments)
    return {field.form_name: [field.value] for field in fields if field.widget != "checkbox" or field.value}


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(ARGUMENTS)
def test_arguments_survive_the_form(arguments: dict[str, Any]):
    parsed = parse_form(SCHEMA, submit(arguments))
    assert parsed == arguments
    check_arguments("m.report", SCHEMA, parsed)


def test_fields_have_the_widget_of_their_type():
    widgets = {field.name: field.widget for field in make_fields(SCHEMA, {})}
    assert widgets == {
        "day": "date", "limit": "number", "share": "number", "label": "text", "mode": "select", "size": "select",
        "region": "json", "vendors": "json", "note": "text", "rows": "number", "dry_run": "checkbox",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("limit", "many", "many"),
        ("region", "{", "{"),
        ("mode", '"slow"', "slow"),
        ("rows", "", None),
        ("label", "", ""),
    ],
)
def test_texts_that_cannot_be_read_stay_for_validation(name: str, text: str, expected: object):
    assert parse_form(SCHEMA, {FIELD_PREFIX + name: [text]})[name] == expected


def test_defaults_fill_the_form():
    values = {field.name: field.value for field in make_fields(SCHEMA, {})}
    assert (values["rows"], values["note"], values["dry_run"], values["limit"]) == ("7", "", "", "")
    assert TypeAdapter(int).validate_json(values["rows"]) == 7
