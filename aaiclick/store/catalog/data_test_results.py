"""Results of data tests: written with the outcome of their task, read as a history.

Readers of a dataset see the results of its tests. If the task is hidden from them, because it reads other datasets or
was added by such a task, texts that may name those datasets are reduced to the type of the test.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.store.catalog.datasets import Reader, load_task_visibility
from aaiclick.store.statements import statement
from aaiclick.store.typed_rows import fetch_rows

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_ID = (1 << 63) - 1
READING_TESTS = ("references", "sql")
"""Types of tests that name other datasets."""


@dataclass(frozen=True, slots=True)
class DataTestRow:
    """The result of one data test of one update."""

    id: int
    org_id: UUID
    subject: str
    dataset_uuid: UUID | None
    partition_key: str
    task_id: int
    job_id: int | None
    attempt: int
    tested_at: datetime
    number: int
    test: str
    on_failure: str
    outcome: str
    rows: int
    failing_rows: int
    message: str
    sample_table: str | None
    published: bool
    latest: bool
    dataset: str | None


async def write_test_results(
    connection: Connection, results: Sequence[tuple[tuple[int, int], Sequence[dict[str, Any]]]]
) -> None:
    """Write the results of attempts (task, attempt) in the transaction that ends them, and keep their samples.

    A caller that releases the references of the attempts to tables does so afterwards.
    """
    rows: list[dict[str, Any]] = []
    for (task_id, attempt), tests in results:
        rows += [{**test, "task_id": task_id, "attempt": attempt} for test in tests]
        samples = [test["sample"] for test in tests if test["sample"] is not None]
        if samples:
            await connection.execute(statement("hold_samples"), task_id, attempt, samples)
    if rows:
        await connection.execute(statement("insert_test_results"), json.dumps(rows))


async def list_latest_tests(
    connection: Connection, reader: Reader, *, failed: bool = False, before: int | None = None, limit: int = 100
) -> list[DataTestRow]:
    """List the latest result of each test that a reader may see, newest first; `failed`: only those that failed."""
    query = statement("list_failed_tests") if failed else statement("list_latest_tests")
    rows = await fetch_rows(connection, DataTestRow, query, *_restrict(reader, before, limit))
    return await _redact_tests(connection, reader, rows)


async def list_tests(
    connection: Connection, reader: Reader, *, before: int | None = None, limit: int
) -> list[DataTestRow]:
    """List the results of all tests that a reader may see, newest first."""
    rows = await fetch_rows(connection, DataTestRow, statement("list_tests"), *_restrict(reader, before, limit))
    return await _redact_tests(connection, reader, rows)


async def list_subject_tests(
    connection: Connection,
    reader: Reader,
    subject: str,
    *,
    failed: bool = False,
    before: int | None = None,
    limit: int = 100,
) -> list[DataTestRow]:
    """List the history of the tests of a dataset, by its name or as DAG.OUTPUT, newest first."""
    query = statement("list_subject_tests")
    rows = await fetch_rows(connection, DataTestRow, query, *_restrict(reader, before, limit), subject, failed)
    return await _redact_tests(connection, reader, rows)


async def list_task_tests(connection: Connection, reader: Reader, task_id: int) -> list[DataTestRow]:
    """List the results of the tests of a task, of its last test first."""
    query = statement("list_task_tests")
    rows = await fetch_rows(connection, DataTestRow, query, *_restrict(reader, None, 1_000), task_id)
    return await _redact_tests(connection, reader, rows)


async def _redact_tests(connection: Connection, reader: Reader, rows: list[DataTestRow]) -> list[DataTestRow]:
    """Reduce texts that may name hidden datasets to the type of the test."""
    if reader.roles is None or not rows:
        return rows
    task_ids = list({row.task_id for row in rows})
    readable = await load_task_visibility(connection, reader, task_ids)
    existing = {row["id"] for row in await connection.fetch(statement("list_existing_tasks"), task_ids)}
    hidden = {
        task_id
        for task_id in task_ids
        if (not readable[task_id]["everything"] if task_id in readable else task_id not in existing)
    }
    return [_redact_test(row) if row.task_id in hidden else row for row in rows]


def _redact_test(row: DataTestRow) -> DataTestRow:
    """The result of a hidden task; tests of columns of a visible dataset stay as they are."""
    test_type = row.test.partition(":")[0]
    if row.dataset_uuid is None:
        return replace(row, test=test_type, message="", sample_table=None)
    return replace(row, test=test_type if test_type in READING_TESTS else row.test, sample_table=None)


def _restrict(reader: Reader, before: int | None, limit: int) -> tuple[object, ...]:
    roles = None if reader.roles is None else sorted(reader.roles)
    return reader.org_id, before or MAX_ID, roles, limit
