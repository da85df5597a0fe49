"""Forms of approvals."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from aaiclick.api.approval_forms import check_answers, has_defaults, list_fields, make_form, parse_form_fields
from aaiclick.errors import RequestError, SubmitError


class Size(Enum):
    SMALL = "S"
    LARGE = "L"


class Order(BaseModel):
    euros: int = Field(ge=1, description="Amount")
    note: str = ""
    speed: Literal[1, 2] = 1
    size: Size = Size.SMALL
    day: date | None = None
    gift: bool = False


FORM = make_form(Order)


def test_answers_are_converted_and_completed() -> None:
    answers = check_answers(FORM, {"euros": "5", "day": "2026-11-18"})
    assert answers == {"euros": 5, "note": "", "speed": 1, "size": "S", "day": "2026-11-18", "gift": False}
    assert check_answers(None, {}) == {}
    assert not has_defaults(FORM)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, "euros: Field required"),
        ({"euros": 0}, "euros: Input should be greater than or equal to 1"),
        ({"euros": 1, "speed": 3}, "speed: Input should be 1 or 2"),
        ({"euros": 1, "other": 1}, "other: Extra inputs are not permitted"),
        ({"euros": 1, "note": "x" * 10_001}, "note: String should have at most 10000 characters"),
    ],
)
def test_invalid_answers_name_the_field(answers: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        check_answers(FORM, answers)


def test_fields_of_a_page_become_answers() -> None:
    types = {field.name: field.input_type for field in list_fields(FORM)}
    expected = {"euros": "number", "note": "text", "speed": "choice", "size": "choice", "day": "date"}
    assert types == expected | {"gift": "checkbox"}
    posted = {"euros": ["7"], "note": [""], "speed": ["2"], "size": ["L"], "day": [""], "gift": ["1"]}
    assert parse_form_fields(FORM, posted) == {"euros": "7", "speed": 2, "size": "L", "gift": True}


class Nested(BaseModel):
    items: list[int]


class Reserved(BaseModel):
    object_type: str


@pytest.mark.parametrize("model", [Nested, Reserved])
def test_forms_with_other_fields_are_refused(model: type[BaseModel]) -> None:
    with pytest.raises(SubmitError, match=model.__name__):
        make_form(model)


@pytest.mark.parametrize("field", [{"type": "array"}, {"type": "string", "pattern": "("}, {}])
def test_invalid_form_of_a_worker_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="The form of this approval is invalid"):
        check_answers({"properties": {"a": field}}, {})
