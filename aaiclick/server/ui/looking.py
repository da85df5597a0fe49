"""How pages read large tables: in one short transaction whose plans follow indexes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aaiclick.server.routes.common import reading
from aaiclick.server.routing import Call
from aaiclick.store import ui_reads

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


@asynccontextmanager
async def looking(call: Call) -> AsyncGenerator[Connection]:
    """A connection that sees the caller's org, changes nothing, and reads lists in the order of an index."""
    async with reading(call) as connection, connection.transaction(readonly=True):
        await ui_reads.prefer_indexes(connection)
        yield connection
