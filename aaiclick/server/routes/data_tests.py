"""Routes of the results of data tests."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from aaiclick.api.data_tests import DataTestResult
from aaiclick.api.field_types import Name, Page
from aaiclick.operations import data_tests as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("datasets")


@routes.get("/v1/data-tests", Permission.READER)
async def list_data_tests(
    context: Context,
    dataset: Annotated[Name | None, Query(description="Name of a dataset, or DAG.OUTPUT: its history")] = None,
    failed: Annotated[bool, Query(description="Only results that did not pass")] = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[DataTestResult]:
    """List results of data tests, newest first: the history of a dataset, or the latest result of every test."""
    return await context.perform(operations.list_data_tests, dataset=dataset, failed=failed, cursor=cursor, limit=limit)
