"""Routes of the freshness of datasets."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from aaiclick.api.field_types import Name
from aaiclick.api.freshness import DatasetFreshness
from aaiclick.operations import freshness as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("datasets")


@routes.get("/v1/freshness", Permission.READER)
async def list_freshness(
    context: Context,
    dataset: Annotated[Name | None, Query(description="Name of a dataset")] = None,
    late: Annotated[bool, Query(description="Only datasets that are or will be late")] = False,
    limit: Limit = 1_000,
) -> list[DatasetFreshness]:
    """List datasets with a freshness policy, those that are due first."""
    return await context.perform(operations.list_freshness, dataset=dataset, late=late, limit=limit)
