"""Datasets `aaiclick.tests` and `aaiclick.freshness`: what PostgreSQL knows about datasets, for queries.

The rows that the reader may see are loaded when a query is prepared, and are part of its text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from aaiclick.catalog.freshness_forecast import list_forecasts
from aaiclick.catalog.queries.table_rewrite import PhysicalTable
from aaiclick.data.types import quote_text
from aaiclick.store.catalog import data_test_results

if TYPE_CHECKING:
    from aaiclick.store.catalog.datasets import Reader
    from aaiclick.store.postgres_connections import Connection

MAX_ROWS = 10_000
"""The newest results, and the datasets that are due first."""

PAGE_ROWS = 500
"""Results that are read at once: other requests are answered in between."""

MAX_QUERY_BYTES = 64 << 20
"""Queries with these rows are longer than ClickHouse's default limit."""

MOMENT = "Nullable(DateTime64(6, 'UTC'))"
TESTS = "aaiclick.tests"
FRESHNESS = "aaiclick.freshness"
COLUMNS: Mapping[str, Mapping[str, str]] = {
    TESTS: {
        "id": "UInt64", "tested_at": MOMENT, "dataset": "Nullable(String)", "subject": "String",
        "partition_key": "String", "test": "String", "on_failure": "String", "outcome": "String", "rows": "Int64",
        "failing_rows": "Int64", "published": "Bool", "task_id": "Nullable(Int64)",
    },
    FRESHNESS: {
        "dataset": "String", "dag": "String", "job": "String", "state": "String", "updated_at": MOMENT,
        "due_at": MOMENT, "expected_at": MOMENT, "causes": "Array(String)",
    },
}  # fmt: skip


async def load_system_datasets(
    connection: Connection, reader: Reader, names: Iterable[str]
) -> dict[str, PhysicalTable]:
    """Return those of the named datasets that are system datasets, with the rows that the reader may see."""
    tables: dict[str, PhysicalTable] = {}
    for name in names:
        if name == TESTS:
            tables[name] = await asyncio.to_thread(_build_table, name, await _list_tests(connection, reader))
        elif name == FRESHNESS:
            tables[name] = await asyncio.to_thread(_build_table, name, await _list_freshness(connection, reader))
    return tables


def insert_rows(text: str, tables: Iterable[PhysicalTable]) -> str:
    """Insert the rows of system datasets into a prepared query, in which their names are left."""
    for table in tables:
        text = table.inline_source(text)
    return text


async def _list_tests(connection: Connection, reader: Reader) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = []
    before: int | None = None
    while len(listed) < MAX_ROWS:
        rows = await data_test_results.list_tests(connection, reader, before=before, limit=PAGE_ROWS)
        listed += [{column: getattr(row, column) for column in COLUMNS[TESTS]} for row in rows]
        if len(rows) < PAGE_ROWS:
            break
        before = rows[-1].id
    return listed


async def _list_freshness(connection: Connection, reader: Reader) -> list[dict[str, object]]:
    return [
        {
            "dataset": row.name, "dag": row.dag, "job": row.job, "state": forecast.state,
            "updated_at": row.updated_at, "due_at": row.due_at, "expected_at": forecast.expected_at,
            "causes": list(forecast.causes),
        }
        for row, forecast in await list_forecasts(connection, reader, limit=MAX_ROWS)
    ]  # fmt: skip


def _build_table(name: str, rows: Iterable[Mapping[str, object]]) -> PhysicalTable:
    columns = COLUMNS[name]
    structure = ", ".join(f"{column} {type_name}" for column, type_name in columns.items())
    text = "\n".join(json.dumps(row, default=_to_json) for row in rows)
    source = f"SELECT * FROM format(JSONEachRow, {quote_text(structure)}, {quote_text(text)})"  # noqa: S608
    return PhysicalTable(f"rows {uuid4().hex}", tuple(columns), hidden=True, source=source)


def _to_json(value: object) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else str(value)
