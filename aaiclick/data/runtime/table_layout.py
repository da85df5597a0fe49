"""Table layout on a single server: one table per Object. `cluster` has the layout for clusters.

Statements that create, alter or drop tables depend on the layout; those that read, insert or rename do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aaiclick.data.runtime.tables import Columns, Shape, create_statement
from aaiclick.data.types import quote_name

if TYPE_CHECKING:
    from aaiclick.data.runtime.clickhouse_client import ClickHouseClient

DIFFERENT_STRUCTURE = 122
"""Error code of ATTACH PARTITION for a table that a map has filled, which has one more column."""


class Layout:
    """Tables on one server."""

    catalog = "system.tables"
    """Table or subquery that lists all Objects with their comments, sizes and times."""

    settings: Mapping[str, Any] = {}
    """Settings of every query."""

    def __init__(self, client: ClickHouseClient) -> None:
        self._client = client

    def with_catalog(self, text: str) -> str:
        """Replace `{catalog}` in a query by this layout's catalog."""
        return text.replace("{catalog}", self.catalog)

    async def create_table(
        self, name: str, columns: Columns, shape: Shape, engine: str, session: int | None, query_id: str = ""
    ) -> None:
        await self._client.run(create_statement(name, columns, shape, engine, session), query_id=query_id)

    async def drop_table(self, name: str, query_id: str = "") -> None:
        """Drop an Object's table, if it exists."""
        await self._client.run(f"DROP TABLE IF EXISTS {quote_name(name)} SYNC", query_id=query_id)

    async def alter_table(self, name: str, changes: str, query_id: str = "") -> None:
        """Add columns or a comment; of concurrent calls, the first one's column types apply."""
        await self._client.run(f"ALTER TABLE {quote_name(name)} {changes}", query_id=query_id)

    async def attach_rows(self, name: str, source: str, query_id: str = "") -> None:
        """Attach all rows of another table to one without readers; the other table keeps its rows."""
        await self._client.run(attach_statement(name, source), query_id=query_id)

    async def publish_rows(self, name: str, source: str, columns: Columns, query_id: str = "") -> None:  # noqa: ARG002
        """Attach all rows of another table to one with readers, in one step."""
        await self._client.run(attach_statement(name, source), query_id=query_id)

    async def delete_rows(self, name: str, condition: str, parameters: Mapping[str, object]) -> None:
        """Delete rows of a table without readers."""
        statement = f"ALTER TABLE {quote_name(name)} DELETE WHERE {condition}"
        await self._client.run(statement, parameters, {"mutations_sync": 1})

    async def primary_table(self, name: str) -> str:
        """Return the table that can be altered atomically; locks are stored there."""
        return name

    def parts_table(self, name: str) -> str:
        """Return the table that has the data parts of a temporary Object."""
        return name


def attach_statement(name: str, source: str) -> str:
    return f"ALTER TABLE {quote_name(name)} ATTACH PARTITION tuple() FROM {quote_name(source)}"
