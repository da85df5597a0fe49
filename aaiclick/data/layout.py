"""Where the rows of an Object lie: in a table of its name on one server. `cluster` has the other answer.

Statements that only read, insert or rename are the same for both; what makes, changes and drops tables goes through
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aaiclick.data.tables import Columns, Shape, create_statement
from aaiclick.data.types import quote_name

if TYPE_CHECKING:
    from aaiclick.data.client import Client

OTHER_STRUCTURE = 122
"""What ATTACH PARTITION answers for a table that a map has filled: it has one column more."""


class Layout:
    """Tables on one server."""

    catalog = "system.tables"
    """What lists all Objects, with their comments, sizes and times."""

    settings: Mapping[str, Any] = {}
    """What every query needs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def listing(self, text: str) -> str:
        """A query that reads `{catalog}`, made to read ours."""
        return text.replace("{catalog}", self.catalog)

    async def create(
        self, name: str, columns: Columns, shape: Shape, engine: str, session: int | None, query_id: str = ""
    ) -> None:
        await self._client.run(create_statement(name, columns, shape, engine, session), query_id=query_id)

    async def drop(self, name: str, query_id: str = "") -> None:
        """Drop an Object's table, if it exists."""
        await self._client.run(f"DROP TABLE IF EXISTS {quote_name(name)} SYNC", query_id=query_id)

    async def define(self, name: str, changes: str, query_id: str = "") -> None:
        """Add columns, or a comment; of two who do so at once, the first one's types are those of all rows."""
        await self._client.run(f"ALTER TABLE {quote_name(name)} {changes}", query_id=query_id)

    async def attach(self, name: str, source: str, query_id: str = "") -> None:
        """Give a table that nobody reads yet all rows of another, which keeps them."""
        await self._client.run(attach_statement(name, source), query_id=query_id)

    async def publish(self, name: str, source: str, columns: Columns, query_id: str = "") -> None:  # noqa: ARG002
        """Give a table that others read all rows of another, at once."""
        await self._client.run(attach_statement(name, source), query_id=query_id)

    async def delete(self, name: str, condition: str, parameters: Mapping[str, Any]) -> None:
        """Remove rows of a table that nobody reads yet."""
        statement = f"ALTER TABLE {quote_name(name)} DELETE WHERE {condition}"
        await self._client.run(statement, parameters, {"mutations_sync": 1})

    async def place_of(self, name: str) -> str:
        """The table whose definition can be changed in one step; locks are kept there."""
        return name

    def parts_of(self, name: str) -> str:
        """The table that has the parts of a temporary Object."""
        return name


def attach_statement(name: str, source: str) -> str:
    return f"ALTER TABLE {quote_name(name)} ATTACH PARTITION tuple() FROM {quote_name(source)}"
