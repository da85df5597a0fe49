"""Read-only transaction for pages that list rows of large tables."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.routing import RequestContext
from aaiclick.store.ui import job_queries

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@asynccontextmanager
async def read_transaction(call: RequestContext) -> AsyncGenerator[Connection]:
    """Open a read-only transaction for the caller's organisation, with a planner that prefers index scans."""
    async with tenant_connection(call) as connection, connection.transaction(readonly=True):
        await job_queries.prefer_indexes(connection)
        yield connection
