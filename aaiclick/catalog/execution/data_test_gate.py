"""Data tests between the staging and the publication of rows, so that readers never see rows that fail.

All tests of an output run as one query over the staged rows. Rows that fail a test with `on_failure: quarantine` are
staged apart, with the reasons, and the rest is tested again; then the other tests are judged. Tests that depend on rows
of other updates are valid as long as none was published: `publishes` is checked under the lock of the publication.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

from aaiclick.catalog.dags.data_tests import THIS, build_tests
from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution import dataset_tables
from aaiclick.catalog.execution.dataset_tables import Columns, DatasetLayout, StagedRows
from aaiclick.catalog.execution.definition_context import DatasetLocation, DefinitionContext
from aaiclick.catalog.execution.parquet_storage import is_own_prefix
from aaiclick.catalog.queries.table_rewrite import PhysicalTable, prepare_query
from aaiclick.data.compile.data_test_queries import (
    CheckedRows,
    DataTest,
    DataTestResult,
    build_reasons,
    check_test_columns,
)
from aaiclick.data.context import get_data_context
from aaiclick.data.errors import INVALID_TEST_CODES, ColumnNotFoundError, InvalidTestError, QueryError
from aaiclick.data.expectations import MAX_ROUNDS, REASON, blocked_error, list_results, run_tests, sample_failures
from aaiclick.data.types import quote_name, quote_text

ROW_ID = "rejected_row"
"""The key of rejected rows of an output that is appended to: a row that is rejected again is stored once."""


@dataclass(frozen=True)
class GatedRows:
    """Rows that passed the tests, rejected rows if the output has a dataset for them, and the results."""

    passed: StagedRows
    rejected: StagedRows | None
    results: tuple[DataTestResult, ...]
    publishes: int | None
    """Publications that the tests have read; None if they depend on the staged rows only."""


@dataclass
class DataTestGate:
    """Tests the staged rows of an output."""

    definition: DefinitionContext
    name: str
    slice_key: str
    ticket: int
    existing_columns: Columns
    """Columns of the rows in the dataset; () if there are none."""
    rejected_columns: Columns
    """Columns of the rejected rows of earlier updates; () if there are none."""
    tests: tuple[DataTest, ...] = field(init=False)
    location: DatasetLocation = field(init=False)

    def __post_init__(self) -> None:
        output, self.location = self.definition.outputs[self.name]
        self.tests = build_tests(output.tests)

    @asynccontextmanager
    async def run(self, staged: StagedRows) -> AsyncGenerator[GatedRows]:
        """Test staged rows; yields those to publish. Raises DataTestError if they fail a blocking test."""
        context = get_data_context()
        self._check_columns(staged.layout)
        async with AsyncExitStack() as stack:
            rejected_selects: list[str] = []
            while True:
                checked = self._checked_rows(staged)
                verdict = await run_tests(context, self.tests, checked)
                failed = [self.tests[number] for number in verdict.failed(self.tests, "quarantine")]
                if not failed or len(rejected_selects) == MAX_ROUNDS:
                    break
                select, rest = self._split(staged.layout, checked, failed)
                rejected_selects.append(select)
                staged = await self._stage_rest(stack, rest, staged.layout)
            rejected = await self._stage_rejected(stack, staged.layout, rejected_selects)
            counts = await self._count_reasons(rejected) if rejected_selects else {}
            results = self._complete_results(list_results(self.tests, verdict, counts, {}))
            blocked = [result.number for result in results if result.outcome == "blocked"]
            if blocked:
                raise await self._blocked_error(results, blocked, checked)
            yield GatedRows(staged, rejected, results, self.location.publishes if self._reads_remaining() else None)

    def _check_columns(self, layout: DatasetLayout) -> None:
        try:
            check_test_columns(self.tests, layout.names, self._reference_types())
        except ColumnNotFoundError as error:
            raise InvalidTestError(f"A data test of {self.name!r}: {error.what}", remedy=error.remedy) from None
        taken = {REASON, ROW_ID} & set(layout.names) if self.definition.rejected else set[str]()
        if taken:
            raise DatasetError(
                f"The output {self.name!r} has a column {min(taken)!r}, which its rejected rows need.",
                remedy="Rename it.",
            )

    def _reads_remaining(self) -> bool:
        key = tuple(self.definition.spec.unique_key)
        return self.definition.mode != "replace" and any(test.needs_remaining(key) for test in self.tests)

    def _checked_rows(self, staged: StagedRows) -> CheckedRows:
        layout = staged.layout
        source = quote_name(staged.table) + (" FINAL" if layout.mode == "append" else "")
        remaining = self._remaining_select(staged) if self._reads_remaining() else ""
        references = {
            name: "" if location.layout is None else location.physical().select()
            for name, location in self.definition.references.items()
        }
        checked = CheckedRows(
            source, layout.names, remaining, layout.unique_key if layout.mode == "append" else (), references,
            recent_rows=self.location.recent_rows, types=dict(layout.columns), reference_types=self._reference_types(),
        )  # fmt: skip
        return replace(checked, resolve_sql=partial(self._resolve_sql, checked))

    def _reference_types(self) -> dict[str, dict[str, str]]:
        return {
            name: dict(location.layout.columns)
            for name, location in self.definition.references.items()
            if location.layout is not None
        }

    def _remaining_select(self, staged: StagedRows) -> str:
        """Return a SELECT of the rows that stay in the dataset; '' if there are none."""
        layout, location = staged.layout, self.location
        if is_own_prefix(location.table):
            if location.layout is None:
                return ""
            files = [file for file in location.files if layout.mode == "append" or file.slice != self.slice_key]
            select = location.layout.select(location.table, files=files) if files else ""
        elif not self.existing_columns:
            return ""
        elif layout.mode == "slice":
            names = ", ".join(quote_name(name) for name in layout.names)
            other = f"{dataset_tables.SLICE} != {quote_text(self.slice_key)}"
            return f"SELECT {names} FROM {quote_name(location.table)} WHERE {other}"  # noqa: S608
        else:
            select = layout.select(location.table)
        if layout.mode == "append" and select:
            keys = ", ".join(quote_name(key) for key in layout.unique_key)
            replaced = f"SELECT {keys} FROM {quote_name(staged.table)}"  # noqa: S608
            select = f"SELECT * FROM ({select}) WHERE ({keys}) NOT IN ({replaced})"  # noqa: S608
        return select

    def _resolve_sql(self, checked: CheckedRows, query: str) -> str:
        names = ", ".join(quote_name(name) for name in checked.columns)
        this = f"SELECT {names} FROM {checked.source}"  # noqa: S608
        everything = f"{this} UNION ALL SELECT {names} FROM ({checked.remaining})" if checked.remaining else this  # noqa: S608
        tables = {THIS: _virtual_table(this, checked.columns), self.name: _virtual_table(everything, checked.columns)}
        for name, location in self.definition.references.items():
            if location.layout is not None:
                tables[name] = location.physical()
        return prepare_query(query, tables).text

    def _split(self, layout: DatasetLayout, checked: CheckedRows, failed: Sequence[DataTest]) -> tuple[str, str]:
        """Return the SELECTs of the rows that fail tests, with the reasons, and of the others."""
        names = ", ".join(quote_name(name) for name in layout.names)
        reasons = build_reasons(failed, checked)
        row_id = f", hex(sipHash128Reference(tuple({names}))) AS {ROW_ID}" if layout.mode == "append" else ""
        judged = f"SELECT {names}, {reasons} AS {REASON}{row_id} FROM {checked.source}"  # noqa: S608
        return (
            f"SELECT * FROM ({judged}) WHERE notEmpty({REASON})",  # noqa: S608
            f"SELECT {names} FROM ({judged}) WHERE empty({REASON})",  # noqa: S608
        )

    async def _stage_rest(self, stack: AsyncExitStack, select: str, layout: DatasetLayout) -> StagedRows:
        """Stage the rows that pass."""
        staging = dataset_tables.stage_rows(get_data_context(), select, layout, (), self.ticket, self.slice_key)
        try:
            return await stack.enter_async_context(staging)
        except QueryError as error:
            if error.code not in INVALID_TEST_CODES:
                raise
            raise InvalidTestError(
                f"Rows that fail a data test of {self.name!r} cannot be set aside. {error.what:.500}",
                remedy="A sql test with quarantine returns rows of the update: SELECT * FROM this WHERE …",
            ) from None

    async def _stage_rejected(
        self, stack: AsyncExitStack, layout: DatasetLayout, selects: Sequence[str]
    ) -> StagedRows | None:
        """Stage the rejected rows; None if the output has no dataset for them or nothing changes in it."""
        if self.name not in self.definition.rejected:
            return None
        location = self.definition.rejected[self.name][1]
        if not selects and layout.mode == "append" and location.layout is not None:
            return None
        columns = (*layout.columns, (REASON, "Array(String)"))
        if layout.mode == "append":
            layout = replace(layout, columns=(*columns, (ROW_ID, "String")), unique_key=(ROW_ID,))
        else:
            layout = replace(layout, columns=columns)
        structure = ", ".join(f"{quote_name(name)} {type_name}" for name, type_name in layout.columns)
        select = " UNION ALL ".join(selects) or f"SELECT * FROM null({quote_text(structure)})"  # noqa: S608
        staging = dataset_tables.stage_rows(
            get_data_context(), select, layout, self.rejected_columns, self.ticket, self.slice_key
        )
        return await stack.enter_async_context(staging)

    async def _count_reasons(self, rejected: StagedRows | None) -> dict[int, int]:
        """Return how many rows each test has rejected, by its number."""
        assert rejected is not None  # noqa: S101  (rows were rejected)
        quarantining = [number for number, test in enumerate(self.tests) if test.on_failure == "quarantine"]
        counts = [
            f"countIf(has({REASON}, {quote_text(self.tests[number].describe_test())}))" for number in quarantining
        ]
        context = get_data_context()
        result = await context.client.read_text(
            f"SELECT {', '.join(counts)} FROM {quote_name(rejected.table)}",  # noqa: S608
            query_id=context.query_id(),
        )
        row = [int(column[0].as_py()) for column in result.columns]
        return {number: count for number, count in zip(quarantining, row, strict=True) if count}

    def _complete_results(self, results: Sequence[DataTestResult]) -> tuple[DataTestResult, ...]:
        published = all(result.outcome != "blocked" for result in results)
        return tuple(
            replace(
                result,
                output=self.name,
                dataset=str(self.location.dataset),
                partition=self.slice_key,
                published=published,
            )
            for result in results
        )

    async def _blocked_error(
        self, results: Sequence[DataTestResult], blocked: Sequence[int], checked: CheckedRows
    ) -> Exception:
        samples = await sample_failures(self.tests, blocked, checked)
        with_samples = [
            replace(result, sample=samples[result.number].table_id) if result.number in samples else result
            for result in results
        ]
        return blocked_error(f"{self.definition.dag_name}.{self.name}", with_samples, list(samples.values()))


def _virtual_table(select: str, columns: tuple[str, ...]) -> PhysicalTable:
    return PhysicalTable(f"rows {uuid4().hex}", columns, hidden=True, source=select)
