"""Operations on the results of data tests. Those of datasets that the actor's roles may not read are not found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.data_tests import DataTestResult
from aaiclick.api.field_types import Page
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.operation import operation
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.store.catalog import data_test_results as store

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.READER, changes=False)
async def list_data_tests(
    connection: Connection,
    actor: Actor,
    *,
    dataset: str | None = None,
    failed: bool = False,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[DataTestResult]:
    """List results of data tests, newest first: the history of a dataset, or the latest result of every test."""
    reader = await dataset_reader(connection, actor)
    before = read_id_cursor(cursor, store.MAX_ID)
    if dataset is None:
        rows = await store.list_latest_tests(connection, reader, failed=failed, before=before, limit=limit + 1)
    else:
        rows = await store.list_subject_tests(
            connection, reader, dataset, failed=failed, before=before, limit=limit + 1
        )
    return make_page(rows, limit, DataTestResult.model_validate, lambda row: row.id)
