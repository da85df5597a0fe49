"""Data tests of Objects: `await expect(orders).unique("id").between("euros", 0, 100_000)`.

All tests run as one query. Rows that fail a test with `on_failure="quarantine"` are left out, then the other tests are
judged on the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aaiclick.data.compile.data_test_queries import (
    ROWS,
    Accepted,
    Between,
    CheckedRows,
    DataTest,
    DataTestResult,
    FreshnessOf,
    Matches,
    NotNull,
    OnFailure,
    References,
    RowCount,
    Sql,
    Unique,
    Value,
    build_query,
    build_reasons,
    build_sample,
    check_test_columns,
    explain_pattern,
)
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.create import create_object_from_query, create_object_from_value
from aaiclick.data.errors import INVALID_TEST_CODES, DataTestError, DataTypeError, InvalidTestError, QueryError
from aaiclick.data.object import Object
from aaiclick.data.types import quote_name

SAMPLE_ROWS = 100
"""Failing rows that are kept of each test."""
MAX_ROUNDS = 3
"""Times that rows are set aside before the rest is judged: a SQL test may fail on rows that passed before."""
REASON = "rejected_because"

_logger = logging.getLogger("aaiclick")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The measured values of all tests, and the number of rows."""

    rows: int
    values: tuple[int, ...]
    messages: tuple[str | None, ...]
    """Why a test fails; None for one that passes."""

    def failed(self, tests: Sequence[DataTest], on_failure: OnFailure) -> list[int]:
        """Return the numbers of the failed tests with this consequence."""
        return [
            number
            for number, message in enumerate(self.messages)
            if message is not None and tests[number].on_failure == on_failure
        ]


async def run_tests(context: DataContext, tests: Sequence[DataTest], rows: CheckedRows) -> Verdict:
    """Run all tests as one query."""
    try:
        result = await context.client.read_text(build_query(tests, rows), query_id=context.query_id())
    except QueryError as error:
        raise await _find_invalid_test(context, tests, rows, error) from None
    measured = result.to_pylist()[0]
    values = tuple(int(measured[f"aai_test_{number}"]) for number in range(len(tests)))
    messages = tuple(test.judge_value(value, rows) for test, value in zip(tests, values, strict=True))
    return Verdict(int(measured[ROWS]), values, messages)


async def _find_invalid_test(
    context: DataContext, tests: Sequence[DataTest], rows: CheckedRows, error: QueryError
) -> QueryError:
    """Return the error of the first test that cannot be evaluated alone; the same error if there is none."""
    for test in tests if error.code in INVALID_TEST_CODES else ():
        try:
            await context.client.read_text(build_query([test], rows), query_id=context.query_id())
        except QueryError as test_error:
            if test_error.code in INVALID_TEST_CODES:
                invalid = InvalidTestError(
                    f"The data test {test.describe_test()!r} does not fit its column. {test_error.what:.500}",
                    remedy="Compare with values of the column's type: numbers without quotes, dates as '2026-01-31'.",
                )
                invalid.code = test_error.code
                return invalid
    return error


def list_results(
    tests: Sequence[DataTest], verdict: Verdict, quarantined: Mapping[int, int], samples: Mapping[int, str]
) -> tuple[DataTestResult, ...]:
    """Return the results of all tests: `quarantined` rows and tables of failing rows by the number of the test."""
    results: list[DataTestResult] = []
    for number, test in enumerate(tests):
        message, failing = verdict.messages[number], verdict.values[number]
        outcome = "passed" if message is None else "blocked" if test.on_failure != "warn" else "warned"
        if message is None and number in quarantined:
            outcome, failing = "quarantined", quarantined[number]
            message = f"{failing:,} row{'s'[: failing != 1]} set aside"
        is_row_test = not isinstance(test, RowCount | FreshnessOf)
        results.append(
            DataTestResult(
                test.describe_test(), test.on_failure, outcome, verdict.rows, failing if is_row_test else 0,
                message or "", number, samples.get(number),
            )
        )  # fmt: skip
    return tuple(results)


def blocked_error(subject: str, results: Sequence[DataTestResult], samples: Sequence[Object]) -> DataTestError:
    """Return the error for rows that fail a blocking test."""
    failed = [result for result in results if result.outcome == "blocked"]
    details = "; ".join(f"{result.test} ({result.message})" for result in failed)
    what = f"The data tests of {subject} failed, and no row was published: {details}."
    error = DataTestError(what, remedy="'aaiclick datasets tests --failed' names Objects with failing rows.")
    error.results, error.samples = tuple(results), tuple(samples)
    return error


async def sample_failures(tests: Sequence[DataTest], numbers: Sequence[int], rows: CheckedRows) -> dict[int, Object]:
    """Store some failing rows of tests as Objects."""
    samples: dict[int, Object] = {}
    for number in numbers:
        select = build_sample(tests[number], rows, SAMPLE_ROWS)
        if select is not None:
            samples[number] = await create_object_from_query(select)
    return samples


class Expectation:
    """Tests of an Object, added by its methods and run by `await`."""

    def __init__(
        self, rows: Object, tests: Sequence[DataTest] = (), tables: Mapping[str, Object] | None = None
    ) -> None:
        self._rows = rows
        self._tests = tuple(tests)
        self._tables = dict(tables or {})

    def check(self, *tests: DataTest) -> Expectation:
        """Add tests."""
        return Expectation(self._rows, (*self._tests, *tests), self._tables)

    def unique(self, *columns: str, on_failure: OnFailure = "block") -> Expectation:
        """No two rows have the same values in the columns."""
        return self.check(unique(*columns, on_failure=on_failure))

    def not_null(self, *columns: str, on_failure: OnFailure = "block") -> Expectation:
        """The columns have a value in every row."""
        return self.check(not_null(*columns, on_failure=on_failure))

    def between(
        self, column: str, low: Value | None = None, high: Value | None = None, *, on_failure: OnFailure = "block"
    ) -> Expectation:
        """The values of a column are within bounds."""
        return self.check(between(column, low, high, on_failure=on_failure))

    def accepted(self, column: str, values: Sequence[Value], *, on_failure: OnFailure = "block") -> Expectation:
        """The values of a column are among these."""
        return self.check(accepted(column, values, on_failure=on_failure))

    def matches(self, column: str, pattern: str, *, on_failure: OnFailure = "block") -> Expectation:
        """The whole text of a column matches a regular expression."""
        return self.check(matches(column, pattern, on_failure=on_failure))

    def references(
        self, column: str, rows: Object, other_column: str | None = None, *, on_failure: OnFailure = "block"
    ) -> Expectation:
        """Each value of a column is a value of a column of another Object."""
        name = f"Object {len(self._tables) + 1}"
        test = References(column, name, other_column or column, on_failure=on_failure)
        return Expectation(self._rows, (*self._tests, test), {**self._tables, name: rows})

    def row_count(
        self, at_least: int | None = None, at_most: int | None = None, *, on_failure: OnFailure = "block"
    ) -> Expectation:
        """The number of rows is within bounds."""
        return self.check(row_count(at_least, at_most, on_failure=on_failure))

    def freshness_of(self, column: str, max_age_seconds: int, *, on_failure: OnFailure = "block") -> Expectation:
        """The newest value of a column of dates or times is not older than this."""
        return self.check(freshness_of(column, max_age_seconds, on_failure=on_failure))

    def sql(self, query: str, *, on_failure: OnFailure = "block") -> Expectation:
        """A query over the rows, named `this`, returns no row."""
        return self.check(sql(query, on_failure=on_failure))

    def __await__(self) -> Generator[Any, None, Object]:
        return self._run().__await__()

    async def split(self) -> tuple[Object, Object]:
        """Run the tests; return the rows that pass, and those set aside, with the reason in `rejected_because`."""
        return await self._split()

    async def _run(self) -> Object:
        passed, _ = await self._split()
        return passed

    async def _split(self) -> tuple[Object, Object]:
        rows = await self._rows.materialize()
        await rows.store_literal()
        reference_types = {name: _list_types(table) for name, table in self._tables.items()}
        check_test_columns(self._tests, rows.columns, reference_types)
        names = ", ".join(quote_name(column) for column in rows.columns)
        references = {name: await _select_rows(table) for name, table in self._tables.items()}
        select = f"SELECT {names} FROM {quote_name(rows.table_id)}"  # noqa: S608
        rejected: list[str] = []
        counts: dict[int, int] = {}
        while True:
            checked = CheckedRows(
                f"({select})", tuple(rows.columns), references=references, types=_list_types(rows),
                reference_types=reference_types, resolve_sql=partial(_resolve_sql, select),
            )  # fmt: skip
            verdict = await run_tests(get_data_context(), self._tests, checked)
            failed = verdict.failed(self._tests, "quarantine")
            if not failed or len(rejected) == MAX_ROUNDS:
                break
            reasons = build_reasons([self._tests[number] for number in failed], checked)
            condition = f"notEmpty({reasons})"
            rejected.append(f"SELECT {names}, {reasons} AS {REASON} FROM ({select}) WHERE {condition}")  # noqa: S608
            counts |= {number: verdict.values[number] for number in failed}
            select = f"SELECT {names} FROM ({select}) WHERE NOT {condition}"  # noqa: S608
        results = list_results(self._tests, verdict, counts, {})
        await self._raise_if_blocked(results, checked)
        for result in results:
            if result.outcome in ("warned", "quarantined"):
                _logger.warning("%s: %s.", result.test, result.message)
        if not rejected:
            empty = f"SELECT {names}, [''] AS {REASON} FROM ({select}) WHERE false"  # noqa: S608
            return rows, await create_object_from_query(empty)
        return await create_object_from_query(select), await create_object_from_query(" UNION ALL ".join(rejected))

    async def _raise_if_blocked(self, results: Sequence[DataTestResult], checked: CheckedRows) -> None:
        blocked = [result.number for result in results if result.outcome == "blocked"]
        if blocked:
            samples = await sample_failures(self._tests, blocked, checked)
            with_samples = [
                replace(result, sample=samples[result.number].table_id) if result.number in samples else result
                for result in results
            ]
            raise blocked_error("the Object", with_samples, list(samples.values()))


def _list_types(rows: Object) -> dict[str, str]:
    return {name: str(column_type) for name, column_type in rows.schema.items()}


async def _select_rows(table: Object) -> str:
    stored = await table.materialize()
    await stored.store_literal()
    names = ", ".join(quote_name(column) for column in stored.columns)
    return f"SELECT {names} FROM {quote_name(stored.table_id)}"  # noqa: S608


def _resolve_sql(select: str, query: str) -> str:
    return f"WITH this AS ({select}) SELECT * FROM (\n{query}\n)"  # noqa: S608


async def check_value(value: object, tests: Sequence[DataTest]) -> Object:
    """Return a value as an Object after its tests; raises DataTestError.

    ```python
    checked = await check_value({"id": [1, 2]}, [unique("id")])
    ```
    """
    rows = value if isinstance(value, Object) else await create_object_from_value(value)
    return await Expectation(rows, tests)


def expect(rows: Object) -> Expectation:
    """Tests of an Object: add them by methods, and `await` the result.

    ```python
    checked = await expect(numbers).unique("x").between("x", 0, 100)
    ```
    """
    return Expectation(rows)


def unique(*columns: str, on_failure: OnFailure = "block") -> Unique:
    """No two rows have the same values in the columns.

    ```python
    @task(tests=[unique("id")])
    async def orders() -> Object:
        return await create_object_from_value([{"id": 1, "euros": 20}])
    ```
    """
    return Unique(columns, on_failure=on_failure)


def not_null(*columns: str, on_failure: OnFailure = "block") -> NotNull:
    """The columns have a value in every row.

    ```python
    @task(tests=[not_null("id", "euros")])
    async def orders() -> Object:
        return await create_object_from_value([{"id": 1, "euros": 20}])
    ```
    """
    return NotNull(columns, on_failure=on_failure)


def between(
    column: str, low: Value | None = None, high: Value | None = None, *, on_failure: OnFailure = "block"
) -> Between:
    """The values of a column are within bounds, which are part of the range.

    ```python
    @task(tests=[between("euros", 0, 100_000)])
    async def orders() -> Object:
        return await create_object_from_value([{"id": 1, "euros": 20}])
    ```
    """
    if low is None and high is None:
        raise DataTypeError("between() has no bound.", remedy="Pass low, high or both.")
    return Between(column, low, high, on_failure=on_failure)


def accepted(column: str, values: Sequence[Value], *, on_failure: OnFailure = "block") -> Accepted:
    """The values of a column are among these.

    ```python
    @task(tests=[accepted("state", ["open", "paid"])])
    async def orders() -> Object:
        return await create_object_from_value([{"id": 1, "euros": 20}])
    ```
    """
    return Accepted(column, tuple(values), on_failure=on_failure)


def matches(column: str, pattern: str, *, on_failure: OnFailure = "block") -> Matches:
    """The whole text of a column matches a regular expression (RE2).

    ```python
    @task(tests=[matches("email", r"[^@]+@[^@]+")])
    async def orders() -> Object:
        return await create_object_from_value([{"id": 1, "euros": 20}])
    ```
    """
    if problem := explain_pattern(pattern):
        raise DataTypeError(f"{pattern!r:.80} is not a regular expression (RE2): {problem}", remedy="Correct it.")
    return Matches(column, pattern, on_failure=on_failure)


def row_count(at_least: int | None = None, at_most: int | None = None, *, on_failure: OnFailure = "block") -> RowCount:
    """The number of rows is within bounds.

    ```python
    @task(tests=[row_count(at_least=1)])
    async def orders() -> Object:
        return await create_object_from_value([{"id": 1, "euros": 20}])
    ```
    """
    return RowCount(at_least, at_most, on_failure=on_failure)


def freshness_of(column: str, max_age_seconds: int, *, on_failure: OnFailure = "block") -> FreshnessOf:
    """The newest value of a column of dates or times is not older than this.

    ```python
    @task(tests=[freshness_of("day", max_age_seconds=86_400)])
    async def orders() -> Object:
        return await create_object_from_value([{"id": 1, "euros": 20}])
    ```
    """
    return FreshnessOf(column, max_age_seconds, on_failure=on_failure)


def sql(query: str, *, on_failure: OnFailure = "block") -> Sql:
    """A query over the rows, named `this`, returns no row.

    ```python
    @task(tests=[sql("SELECT * FROM this WHERE euros < 0", on_failure="warn")])
    async def orders() -> Object:
        return await create_object_from_value([{"id": 1, "euros": 20}])
    ```
    """
    return Sql(query, on_failure=on_failure)
