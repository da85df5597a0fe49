"""Validation of JSON values by a JSON Schema, compared with jsonschema."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Annotated, Literal

import hypothesis
import jsonschema
import pytest
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from aaiclick.errors import SubmitError
from aaiclick.orchestration.json_schema_validation import TooManyStepsError, check_arguments
from aaiclick.orchestration.parameters import JobParameters


class Size(Enum):
    SMALL = 1
    BIG = 2


class Region(BaseModel):
    city: str
    radius: Annotated[float, Field(gt=0)] = 3
    parts: list[Region] = Field(default_factory=list)


def report(
    day: date,
    limit: Annotated[int, Field(ge=1, le=10)] = 5,
    mode: Literal["fast", "full"] = "fast",
    size: Size = Size.SMALL,
    vendors: list[str] | None = None,
    region: Region | None = None,
    counts: dict[str, int] | None = None,
    dry_run: bool = False,
    pair: tuple[int, str] = (1, "a"),
) -> None: ...


SCHEMA = JobParameters(report).schema
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker(["date"]))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 12),
    st.floats(allow_nan=False),
    st.sampled_from(["fast", "2026-01-01", ""]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["city", "radius", "parts", "other"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "unknown"]), VALUES, max_size=4))
def test_decision_is_that_of_jsonschema(arguments: dict[str, object]):
    arguments = {"day": "2026-01-01"} | arguments
    try:
        check_arguments("m.report", SCHEMA, arguments)
        is_accepted = True
    except SubmitError:
        is_accepted = False
    if not any(isinstance(value, float) and value.is_integer() for value in arguments.values()):  # 1.0 is an integer
        assert is_accepted == VALIDATOR.is_valid(arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "day: it is missing."),
        ({"day": "today"}, 'day: Input should be date, not "today".'),
        ({"day": "2026-01-01", "limit": 11}, "limit: Input should be integer >= 1 <= 10, not 11."),
        ({"day": "2026-01-01", "limit": "5"}, 'limit: Input should be integer >= 1 <= 10, not "5".'),
        ({"day": "2026-01-01", "mode": "slow"}, 'mode: Input should be fast | full, not "slow".'),
        ({"day": "2026-01-01", "colour": 1}, "colour: there is no such parameter."),
        ({"day": "2026-01-01", "pair": [1]}, "pair: Input should be"),
    ],
)
def test_mistakes_name_the_parameter_and_what_it_allows(arguments: dict[str, object], message: str):
    with pytest.raises(SubmitError) as refusal:
        check_arguments("m.report", SCHEMA, arguments)
    assert message in str(refusal.value)
    assert "Its parameters: day: date, limit: integer >= 1 <= 10 = 5" in str(refusal.value)


def test_results_of_tasks_are_accepted_for_any_type():
    check_arguments("m.report", SCHEMA, {"day": {"object_type": "object", "table_id": "t1"}})


def test_recursive_value_is_refused_without_overflow():
    value: dict[str, object] = {"city": "Cork"}
    for _ in range(500):
        value = {"city": "Cork", "parts": [value]}
    with pytest.raises(SubmitError):
        check_arguments("m.report", SCHEMA, {"day": "2026-01-01", "region": value})


TREE = {"$ref": "#/$defs/Tree"}
NAMES = [f"k{number}" for number in range(1_000)]
OBJECT = dict.fromkeys(NAMES, 1)
HOSTILE: dict[str, tuple[dict[str, object], object]] = {
    "references to itself": (TREE, 1),
    "unions of choices": ({"items": {"anyOf": [*([{"enum": ["a", "b"]}] * 100), {}]}}, ["x"] * 10_000),
    "unions of objects": ({"anyOf": [{"properties": {"a": {}}, "required": ["b"]}] * 1_000}, OBJECT),
    "required names": ({"items": {"required": NAMES}}, [OBJECT] * 1_000),
    "objects as choices": ({"items": {"enum": [NAMES]}}, [NAMES] * 1_000),
    "names of types": ({"items": {"type": ["null", *["string"] * 1_000]}}, [""] * 1_000),
}


@pytest.mark.parametrize(("schema", "value"), HOSTILE.values(), ids=HOSTILE)
def test_validation_with_too_many_steps_is_refused(schema: dict[str, object], value: object):
    root = {"properties": {"x": schema}, "$defs": {"Tree": {"anyOf": [TREE, TREE]}}}
    with pytest.raises(TooManyStepsError, match=r"The arguments of m.f take more than 500,000 steps to validate"):
        check_arguments("m.f", root, {"x": value})


def test_number_of_choices_does_not_matter():
    choices = [*range(20_000), True, [1, {"a": None}]]
    schema = {"properties": {"x": {"type": "array", "items": {"enum": choices}}}}
    check_arguments("m.f", schema, {"x": [*reversed(choices), 1.0]})
    for other in (False, [True, {"a": None}], {}, "1", None):
        with pytest.raises(SubmitError, match="Input should be"):
            check_arguments("m.f", schema, {"x": [other]})


def test_long_names_and_values_are_shortened():
    schema = {"additionalProperties": {"items": {"type": "integer"}}}
    with pytest.raises(SubmitError) as refusal:
        check_arguments("m.f", schema, {"n" * 1_000: ["x" * 1_000, {"y": [1] * 1_000}]})
    assert f"{'n' * 60}[1]: Input should be integer, not {{" in str(refusal.value)
    assert len(str(refusal.value)) < 500
