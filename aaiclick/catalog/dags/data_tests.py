"""Data tests of an output in a DAG file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from aaiclick.data.compile import data_test_queries as tests
from aaiclick.data.compile.data_test_queries import DataTest

COLUMN_REFERENCE = r"^[a-z][a-z0-9_]{0,62}\..{1,256}$"
PERCENTAGE = r"^[+-]?[0-9]{1,7}(\.[0-9]{1,3})?%$"
LAST_RUNS = r"^last_([1-9]|[12][0-9]|30)_runs$"
DURATION = r"^[1-9][0-9]{0,8}[smhd]$"
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
THIS = "this"
"""The rows of the update in the query of a test."""

ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
OnFailure = Annotated[
    Literal["block", "quarantine", "warn"],
    Field(
        description="block: the rows are not published and the task fails; quarantine: failing rows go to "
        "NAME__rejected; warn: they are published and reported."
    ),
]
Value = int | float | str | bool
Duration = Annotated[str, StringConstraints(pattern=DURATION)]
Percentage = Annotated[str, StringConstraints(pattern=PERCENTAGE)]


def _as_list(value: object) -> Any:
    return [value] if isinstance(value, str) else value


ColumnNames = Annotated[
    list[ColumnName],
    BeforeValidator(_as_list, json_schema_input_type=ColumnName | list[ColumnName]),
    Field(min_length=1, max_length=100),
]


class TestModel(BaseModel):
    """Base of the models of tests: strict, immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ConfiguredTest(TestModel):
    on_failure: OnFailure | None = None


class BetweenSettings(ConfiguredTest):
    column: ColumnName
    low: Annotated[Value | None, Field(description="The smallest value that passes.")] = None
    high: Annotated[Value | None, Field(description="The largest value that passes.")] = None


class AcceptedSettings(ConfiguredTest):
    column: ColumnName
    values: Annotated[list[Value], Field(min_length=1, max_length=10_000)]


class MatchesSettings(ConfiguredTest):
    column: ColumnName
    pattern: Annotated[
        str, StringConstraints(min_length=1, max_length=1_000), Field(description="RE2, for the whole text.")
    ]


class RowChange(TestModel):
    """Allowed change of the number of rows against the mean of the last runs."""

    low: Annotated[Percentage | None, Field(alias="from", description="For example -50%.")] = None
    high: Annotated[Percentage | None, Field(alias="to", description="For example 300%.")] = None
    against: Annotated[
        str, StringConstraints(pattern=LAST_RUNS), Field(description="last_N_runs, at most last_30_runs.")
    ] = "last_7_runs"

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)


class Rows(ConfiguredTest):
    at_least: Annotated[int | None, Field(ge=0)] = None
    at_most: Annotated[int | None, Field(ge=0)] = None
    change: RowChange | None = None


class ColumnFreshness(ConfiguredTest):
    column: ColumnName
    max_age: Annotated[Duration, Field(description="For example 30m, 2h, 1d.")]


class DataTestSpec(TestModel):
    """A test of an output: one of its keys, and what happens to rows that fail."""

    unique: Annotated[ColumnNames | None, Field(description="Columns that are unique together.")] = None
    not_null: Annotated[ColumnNames | None, Field(description="Columns without NULL.")] = None
    between: BetweenSettings | None = None
    accepted: AcceptedSettings | None = None
    matches: MatchesSettings | None = None
    references: Annotated[
        dict[ColumnName, Annotated[str, StringConstraints(pattern=COLUMN_REFERENCE)]] | None,
        Field(min_length=1, max_length=100, description="Column: dataset.column that has its values."),
    ] = None
    rows: Annotated[Rows | None, Field(description="The number of rows of an update.")] = None
    freshness_of: ColumnFreshness | None = None
    sql: Annotated[
        str | None,
        StringConstraints(min_length=1, max_length=100_000),
        Field(description="A SELECT over `this`, the rows of the update; the rows it returns are failures."),
    ] = None
    on_failure: OnFailure = "block"

    @property
    def effective_on_failure(self) -> Literal["block", "quarantine", "warn"]:
        for test in (self.between, self.accepted, self.matches, self.rows, self.freshness_of):
            if test is not None and test.on_failure is not None:
                return test.on_failure
        return self.on_failure


TEST_KEYS = tuple(name for name in DataTestSpec.model_fields if name != "on_failure")
TABLE_TESTS = ("rows", "freshness_of")
"""Tests of all rows together, which cannot be quarantined."""


def duration_seconds(text: str) -> int:
    """Return the seconds of a duration such as 2h."""
    return int(text[:-1]) * UNIT_SECONDS[text[-1]]


def build_tests(specs: list[DataTestSpec]) -> tuple[DataTest, ...]:
    """Return the tests of an output."""
    return tuple(test for spec in specs for test in _build_test(spec))


def _build_test(spec: DataTestSpec) -> Iterator[DataTest]:
    on_failure = spec.effective_on_failure
    if spec.unique is not None:
        yield tests.Unique(tuple(spec.unique), on_failure=on_failure)
    if spec.not_null is not None:
        yield tests.NotNull(tuple(spec.not_null), on_failure=on_failure)
    if spec.between is not None:
        yield tests.Between(spec.between.column, spec.between.low, spec.between.high, on_failure=on_failure)
    if spec.accepted is not None:
        yield tests.Accepted(spec.accepted.column, tuple(spec.accepted.values), on_failure=on_failure)
    if spec.matches is not None:
        yield tests.Matches(spec.matches.column, spec.matches.pattern, on_failure=on_failure)
    for column, reference in (spec.references or {}).items():
        dataset, _, other = reference.partition(".")
        yield tests.References(column, dataset, other, on_failure=on_failure)
    if spec.rows is not None:
        yield _build_row_count(spec.rows, on_failure)
    if spec.freshness_of is not None:
        seconds = duration_seconds(spec.freshness_of.max_age)
        yield tests.FreshnessOf(spec.freshness_of.column, seconds, on_failure=on_failure)
    if spec.sql is not None:
        yield tests.Sql(spec.sql, on_failure=on_failure)


def _build_row_count(rows: Rows, on_failure: Literal["block", "quarantine", "warn"]) -> DataTest:
    change = rows.change or RowChange()
    runs = re.fullmatch(LAST_RUNS, change.against)
    assert runs is not None  # noqa: S101  (the model has checked it)
    low, high = (None if bound is None else float(bound[:-1]) for bound in (change.low, change.high))
    return tests.RowCount(rows.at_least, rows.at_most, low, high, int(runs[1]), on_failure=on_failure)
