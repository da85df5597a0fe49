"""Data tests: conditions that the rows of a table must meet, compiled to ClickHouse SQL.

`build_query` is one SELECT with a column per test, so that all tests of a table read it once. A test of single rows
counts the rows that fail; `build_condition` selects them. A test of the whole table measures it, and Python judges the
value.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aaiclick.data.errors import DataError, column_not_found
from aaiclick.data.types import quote_name, quote_text

OnFailure = Literal["block", "quarantine", "warn"]
Value = str | int | float | bool

ROWS = "aai_rows"
MAX_RUNS = 30
"""Most runs that a number of rows is compared with."""


@dataclass(frozen=True, slots=True)
class DataTestResult:
    """Result of one test of one update. `output` is the output of a definition, '' for the result of a task."""

    test: str
    on_failure: OnFailure
    outcome: Literal["passed", "warned", "quarantined", "blocked"]
    rows: int
    failing_rows: int
    message: str
    number: int
    sample: str | None = None
    """The table of an Object with some failing rows."""
    output: str = ""
    dataset: str | None = None
    partition: str = ""
    published: bool = False


def _refuse_sql(query: str) -> str:
    raise DataError(f"The query {query!r:.60} cannot be used here.")


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows that are tested: `source` is what FROM reads, `remaining` a SELECT of the other rows of the same table.

    `key` are the columns by which a row replaces a remaining one; those rows are not among the remaining.
    """

    source: str
    columns: tuple[str, ...]
    remaining: str = ""
    key: tuple[str, ...] = ()
    references: Mapping[str, str] = field(default_factory=dict[str, str])
    """SELECTs of the tables that tests refer to, by name; '' if a table has no rows yet."""
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Types of the columns."""
    reference_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Types of the columns of the tables in `references`."""
    resolve_sql: Callable[[str], str] = _refuse_sql
    """Returns the SELECT for the text of a SQL test."""
    recent_rows: Sequence[int] = ()
    """Numbers of rows of the last updates, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTest(ABC):
    """A condition on rows. `on_failure`: block the rows, keep failing ones apart, or only report them."""

    on_failure: OnFailure = "block"

    @abstractmethod
    def describe_test(self) -> str:
        """Return the test as text."""

    @abstractmethod
    def build_measure(self, rows: CheckedRows) -> str:
        """Return the aggregate expression that measures the rows."""

    def build_condition(self, rows: CheckedRows) -> str | None:  # noqa: ARG002
        """Return the expression that is true for failing rows; None if the test is about all rows together."""
        return None

    def judge_value(self, value: int, rows: CheckedRows) -> str | None:  # noqa: ARG002
        """Return why the measured value fails, None if it passes."""
        return f"{value:,} row{'s'[: value != 1]} failed" if value else None

    def needs_remaining(self, key: Sequence[str]) -> bool:  # noqa: ARG002
        """Return whether the result depends on the remaining rows of a table with this key."""
        return False

    @property
    def read_columns(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class RowTest(DataTest):
    """A test that each row passes or fails."""

    def build_measure(self, rows: CheckedRows) -> str:
        return f"countIf({self.build_condition(rows)})"


def _names(columns: Sequence[str]) -> str:
    return ", ".join(quote_name(column) for column in columns)


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote_text(value) if isinstance(value, str) else repr(value)


@dataclass(frozen=True, slots=True)
class Unique(RowTest):
    """No two rows have the same values in the columns; rows with a NULL among them are not compared."""

    columns: tuple[str, ...]

    def describe_test(self) -> str:
        return f"unique: {', '.join(self.columns)}"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return self.columns

    def needs_remaining(self, key: Sequence[str]) -> bool:
        return not set(key) <= set(self.columns) or not key

    def build_measure(self, rows: CheckedRows) -> str:
        if self._is_implied(rows):
            return "0"
        names = _names(self.columns)
        value = f"toInt64(countIf({self._complete()})) - toInt64(uniqExact({names}))"
        return f"{value} + countIf({self._is_remaining(rows)})" if rows.remaining else value

    def build_condition(self, rows: CheckedRows) -> str:
        if self._is_implied(rows):
            return "false"
        names = _names(self.columns)
        repeated = f"SELECT {names} FROM {rows.source} WHERE {self._complete()} GROUP BY {names} HAVING count() > 1"  # noqa: S608
        condition = f"{self._complete()} AND ({names}) IN ({repeated})"
        return f"{condition} OR {self._is_remaining(rows)}" if rows.remaining else condition

    def _is_implied(self, rows: CheckedRows) -> bool:
        """Rows with the same key replace each other."""
        return bool(rows.key) and set(rows.key) <= set(self.columns)

    def _complete(self) -> str:
        return " AND ".join(f"{quote_name(column)} IS NOT NULL" for column in self.columns)

    def _is_remaining(self, rows: CheckedRows) -> str:
        names = _names(self.columns)
        tested = f"SELECT {names} FROM {rows.source} WHERE {self._complete()}"  # noqa: S608
        other = f"SELECT {names} FROM ({rows.remaining}) WHERE ({names}) IN ({tested})"  # noqa: S608
        return f"({self._complete()} AND ({names}) IN ({other}))"

    def judge_value(self, value: int, rows: CheckedRows) -> str | None:  # noqa: ARG002
        if not value:
            return None
        return (
            f"{value:,} row{'s'[: value != 1]} repeat{'s'[: value == 1]} the {', '.join(self.columns)} of another row"
        )


@dataclass(frozen=True, slots=True)
class NotNull(RowTest):
    """The columns have a value in every row."""

    columns: tuple[str, ...]

    def describe_test(self) -> str:
        return f"not_null: {', '.join(self.columns)}"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return self.columns

    def build_condition(self, rows: CheckedRows) -> str:  # noqa: ARG002
        return " OR ".join(f"{quote_name(column)} IS NULL" for column in self.columns)


@dataclass(frozen=True, slots=True)
class Between(RowTest):
    """The values of a column are within bounds, which are part of the range; NULL passes."""

    column: str
    low: Value | None = None
    high: Value | None = None

    def describe_test(self) -> str:
        low = "" if self.low is None else f" from {self.low}"
        return f"between: {self.column}{low}{'' if self.high is None else f' to {self.high}'}"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (self.column,)

    def build_condition(self, rows: CheckedRows) -> str:  # noqa: ARG002
        name = quote_name(self.column)
        bounds = [f"{name} >= {_literal(self.low)}"] if self.low is not None else []
        bounds += [f"{name} <= {_literal(self.high)}"] if self.high is not None else []
        return f"ifNull(NOT ({' AND '.join(bounds)}), false)"


@dataclass(frozen=True, slots=True)
class Accepted(RowTest):
    """The values of a column are among these; NULL passes."""

    column: str
    values: tuple[Value, ...]

    def describe_test(self) -> str:
        shown = ", ".join(str(value) for value in self.values[:5])
        return f"accepted: {self.column} in {shown}{', …' if len(self.values) > 5 else ''}"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (self.column,)

    def build_condition(self, rows: CheckedRows) -> str:  # noqa: ARG002
        name, values = quote_name(self.column), ", ".join(_literal(value) for value in self.values)
        return f"{name} IS NOT NULL AND {name} NOT IN ({values})"


@dataclass(frozen=True, slots=True)
class Matches(RowTest):
    """The whole text of a column matches a regular expression (RE2); NULL passes."""

    column: str
    pattern: str

    def describe_test(self) -> str:
        return f"matches: {self.column} {self.pattern}"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (self.column,)

    def build_condition(self, rows: CheckedRows) -> str:  # noqa: ARG002
        pattern = quote_text(rf"\A(?-s:{self.pattern})\z")
        return f"ifNull(NOT match(toString({quote_name(self.column)}), {pattern}), false)"


@dataclass(frozen=True, slots=True)
class References(RowTest):
    """Each value of a column is a value of a column of another table; NULL passes."""

    column: str
    table: str
    other_column: str

    def describe_test(self) -> str:
        return f"references: {self.column} in {self.table}.{self.other_column}"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (self.column,)

    def build_condition(self, rows: CheckedRows) -> str:
        name, select = quote_name(self.column), rows.references[self.table]
        if not select:
            return f"{name} IS NOT NULL"
        other = f"SELECT {quote_name(self.other_column)} FROM ({select})"  # noqa: S608
        other_type = rows.reference_types.get(self.table, {}).get(self.other_column, "")
        value, lossy_cast = _build_cast(name, rows.types.get(self.column, ""), other_type)
        missing = f"{value} NOT IN ({other})"
        return f"{name} IS NOT NULL AND ({missing}{lossy_cast and f' OR {lossy_cast}'})"


_WRAPPERS = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")
_FRACTIONS, _NUMBERS = ("Decimal", "Float"), ("Decimal", "Int", "UInt")
_MOMENTS = ("DateTime", "Date")


def _build_cast(name: str, own_type: str, other_type: str) -> tuple[str, str]:
    """Return a value as the other type, and the condition that it changes; '' if IN compares it exactly.

    IN casts the left side to the type of the right one, where digits of Decimals and times of day are dropped, and a
    Decimal that is too large is an error.
    """
    source, target = _unwrap_type(own_type), _unwrap_type(other_type)
    if source == target:
        return name, ""
    if source.startswith(_FRACTIONS) and target.startswith(_NUMBERS):
        value = f"accurateCastOrNull({name}, {quote_text(target)})"
        return value, f"ifNull({name} != accurateCastOrNull({value}, {quote_text(source)}), true)"
    if source.startswith("DateTime") and target.startswith(_MOMENTS):
        value = f"CAST({name}, {quote_text(f'Nullable({target})')})"
        return value, f"ifNull({name} != CAST({value}, {quote_text(f'Nullable({source})')}), true)"
    return name, ""


def _unwrap_type(type_name: str) -> str:
    while match := _WRAPPERS.fullmatch(type_name):
        type_name = match[1]
    return type_name


def explain_pattern(pattern: str) -> str | None:
    """Return why a pattern is not a regular expression of RE2, None if it is one."""
    import pyarrow as pa  # slow import
    from pyarrow import compute

    try:
        compute.match_substring_regex(pa.array([""], pa.string()), pattern)
    except pa.ArrowInvalid as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None


@dataclass(frozen=True, slots=True)
class RowCount(DataTest):
    """The number of rows is within bounds, and its change against the mean of the last runs, in percent."""

    at_least: int | None = None
    at_most: int | None = None
    change_from: float | None = None
    change_to: float | None = None
    last_runs: int = 7

    def describe_test(self) -> str:
        parts = [f"at least {self.at_least:,}"] if self.at_least is not None else []
        parts += [f"at most {self.at_most:,}"] if self.at_most is not None else []
        if self.change_from is not None or self.change_to is not None:
            bounds = [f"{bound:+g} %" for bound in (self.change_from, self.change_to) if bound is not None]
            parts.append(f"change {' to '.join(bounds)} against the last {self.last_runs} runs")
        return f"rows: {', '.join(parts)}"

    def build_measure(self, rows: CheckedRows) -> str:  # noqa: ARG002
        return "count()"

    def judge_value(self, value: int, rows: CheckedRows) -> str | None:
        if self.at_least is not None and value < self.at_least:
            return f"{value:,} rows, fewer than {self.at_least:,}"
        if self.at_most is not None and value > self.at_most:
            return f"{value:,} rows, more than {self.at_most:,}"
        recent = rows.recent_rows[: self.last_runs]
        mean = sum(recent) / len(recent) if recent else 0
        if not mean:
            return None
        change = 100 * (value - mean) / mean
        too_low = self.change_from is not None and change < self.change_from
        too_high = self.change_to is not None and change > self.change_to
        runs = f"the last {len(recent)} runs" if len(recent) > 1 else "the last run"
        return f"{value:,} rows, {change:+.0f} % against {runs} ({mean:,.0f})" if too_low or too_high else None


@dataclass(frozen=True, slots=True)
class FreshnessOf(DataTest):
    """The newest value of a column of dates or times is not older than this; passes without rows."""

    column: str
    max_age_seconds: int

    def describe_test(self) -> str:
        return f"freshness_of: {self.column} within {self.max_age_seconds:,} s"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return (self.column,)

    def build_measure(self, rows: CheckedRows) -> str:  # noqa: ARG002
        name = quote_name(self.column)
        return f"if(count({name}) = 0, 0, dateDiff('second', assumeNotNull(toDateTime64(max({name}), 0)), now64(0)))"

    def judge_value(self, value: int, rows: CheckedRows) -> str | None:  # noqa: ARG002
        if value <= self.max_age_seconds:
            return None
        return f"the newest {self.column} is {value:,} s old, more than {self.max_age_seconds:,} s"


@dataclass(frozen=True, slots=True)
class Sql(RowTest):
    """A query over the rows (`this`) returns no row: those that it returns are failures."""

    query: str

    def describe_test(self) -> str:
        return f"sql: {' '.join(self.query.split()):.200}"

    def needs_remaining(self, key: Sequence[str]) -> bool:  # noqa: ARG002
        return True

    def build_measure(self, rows: CheckedRows) -> str:
        return f"(SELECT count() FROM ({rows.resolve_sql(self.query)}))"  # noqa: S608

    def build_condition(self, rows: CheckedRows) -> str:
        """Return the condition that a row is among the returned ones, which must have all columns."""
        values = f"sipHash128Reference(tuple({_names(rows.columns)}))"  # of a tuple: NULL alone would hash to NULL
        return f"{values} IN (SELECT {values} FROM ({rows.resolve_sql(self.query)}))"  # noqa: S608


def check_test_columns(
    tests: Sequence[DataTest], columns: Sequence[str], references: Mapping[str, Collection[str]]
) -> None:
    """Raise ColumnNotFoundError for the first test of a column that the rows, or another table, do not have."""
    for test in tests:
        for column in test.read_columns:
            if column not in columns:
                raise column_not_found(column, columns)
        if isinstance(test, References) and (other := references.get(test.table)) and test.other_column not in other:
            raise column_not_found(f"{test.table}.{test.other_column}", [f"{test.table}.{name}" for name in other])


def build_query(tests: Sequence[DataTest], rows: CheckedRows) -> str:
    """Return the query that measures all tests, and the number of rows, in one pass."""
    measures = [f"{test.build_measure(rows)} AS aai_test_{number}" for number, test in enumerate(tests)]
    return f"SELECT {', '.join([f'count() AS {ROWS}', *measures])} FROM {rows.source}"  # noqa: S608


def build_sample(test: DataTest, rows: CheckedRows, limit: int) -> str | None:
    """Return a SELECT of some failing rows; None for a test of the whole table."""
    if isinstance(test, Sql):
        return f"SELECT * FROM ({rows.resolve_sql(test.query)}) LIMIT {limit}"  # noqa: S608
    condition = test.build_condition(rows)
    if condition is None:
        return None
    return f"SELECT {_names(rows.columns)} FROM {rows.source} WHERE {condition} LIMIT {limit}"  # noqa: S608


def build_reasons(tests: Sequence[DataTest], rows: CheckedRows) -> str:
    """Return the expression of the texts of the tests that a row fails, as an array."""
    reasons = [f"if({test.build_condition(rows)}, {quote_text(test.describe_test())}, '')" for test in tests]
    return f"arrayFilter(reason -> reason != '', [{', '.join(reasons)}])"
