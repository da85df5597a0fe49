"""Parameters of a job as options of `aaiclick run`."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import click
import hypothesis
import pytest
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from aaiclick.cli.job_arguments import describe_option, parse_job_arguments
from aaiclick.orchestration.parameters import JobParameters


class Size(Enum):
    SMALL = 1
    BIG = 2


class Region(BaseModel):
    city: str
    radius: int = 3


def report(
    day: date,
    limit: Annotated[int, Field(ge=1, description="Rows to read.")] = 5,
    mode: Literal["fast", "full"] = "fast",
    size: Size = Size.SMALL,
    vendors: list[str] | None = None,
    region: Region | None = None,
    dry_run: bool = False,
    name: str = "",
    anything=None,
) -> None: ...


PARAMETERS = JobParameters(report)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["--day", "2026-01-01"], {"day": "2026-01-01"}),
        (["--day=2026-01-01", "--limit=7"], {"day": "2026-01-01", "limit": 7}),
        (["--limit", "-7"], {"limit": -7}),
        (["--dry-run"], {"dry_run": True}),
        (["--dry_run"], {"dry_run": True}),
        (["--no-dry-run"], {"dry_run": False}),
        (["--dry-run=false"], {"dry_run": False}),
        (["--size", "2"], {"size": 2}),
        (["--vendors", "acme"], {"vendors": ["acme"]}),
        (["--vendors", "acme", "--vendors", "5"], {"vendors": ["acme", "5"]}),
        (["--vendors", '["acme"]'], {"vendors": ["acme"]}),
        (["--vendors", "null"], {"vendors": None}),
        (["--region", '{"city": "Bari"}'], {"region": {"city": "Bari"}}),
        (["--name", "5"], {"name": "5"}),
        (["--name", '"quoted"'], {"name": '"quoted"'}),
        (["--name", "--day"], {"name": "--day"}),
        (["--anything", "5"], {"anything": 5}),
        (["--anything", "text"], {"anything": "text"}),
        (["--limit", "many"], {"limit": "many"}),  # refused when the arguments are bound
    ],
)
def test_options_become_arguments(tokens: list[str], expected: dict[str, object]):
    assert parse_job_arguments(tokens, PARAMETERS.parameters) == expected


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["--dya", "x"], "No such option: --dya. Did you mean --day?"),
        (["--zzz", "x"], "Options of the job: --day, --limit"),
        (["--day"], "--day needs a value"),
        (["2026-01-01"], "Unexpected argument '2026-01-01'"),
        (["--dry-run", "true"], "Unexpected argument 'true'"),
    ],
)
def test_invalid_options_are_refused(tokens: list[str], message: str):
    with pytest.raises(click.UsageError, match=message.replace("?", r"\?")):
        parse_job_arguments(tokens, PARAMETERS.parameters)


def test_options_of_an_unknown_function_are_json_or_text():
    assert parse_job_arguments(["--day", "2026-01-01", "--rows", "5"], None) == {"day": "2026-01-01", "rows": 5}


@pytest.mark.parametrize(
    ("name", "option", "description"),
    [
        ("day", "--day DATE", "date [required]"),
        ("limit", "--limit INTEGER", "Rows to read. integer >= 1 [default: 5]"),
        ("mode", "--mode STRING", "fast | full [default: fast]"),
        ("dry_run", "--dry-run / --no-dry-run", "boolean [default: false]"),
        ("name", "--arg name=VALUE", 'string [default: ""]'),
        ("region", "--region VALUE", "Region | null [default: null] Region: city: string, radius: integer = 3."),
    ],
)
def test_help_has_type_and_default(name: str, option: str, description: str):
    assert describe_option(PARAMETERS.parameters[name], {"--name"}) == (option, description)


TYPES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    date: st.dates(),
    datetime: st.datetimes(),
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    list[int]: st.lists(st.integers()),
    list[str]: st.lists(st.text()),
    dict[str, int]: st.dictionaries(st.text(), st.integers()),
    Size: st.sampled_from(Size),
    Region: st.builds(Region, city=st.text(), radius=st.integers()),
}


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(st.data())
def test_every_value_survives_its_option(data: st.DataObject):
    annotation = data.draw(st.sampled_from(list(TYPES)))
    value = data.draw(TYPES[annotation])
    plain = json.loads(TypeAdapter(annotation).dump_json(value))

    def target(option: Any) -> None: ...

    target.__annotations__["option"] = annotation
    parameters = JobParameters(target)
    text = plain if isinstance(plain, str) else json.dumps(plain)
    arguments = parse_job_arguments([f"--option={text}"], parameters.parameters)
    assert parameters.bind(**arguments).arguments["option"] == value
