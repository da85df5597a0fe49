"""Connections to other PostgreSQL servers, and the types of their columns."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg

from aaiclick.catalog.errors import OperatorError
from aaiclick.data.io.ssrf import check_address
from aaiclick.orchestration.retry_policy import PermanentError

if TYPE_CHECKING:
    from asyncpg import Record

    Connection = asyncpg.Connection[Record]

CONNECT_SECONDS = 15
NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
TYPES = {
    "boolean": "Bool", "smallint": "Int16", "integer": "Int32", "bigint": "Int64", "real": "Float32",
    "double precision": "Float64", "date": "Date32", "uuid": "UUID", "timestamp without time zone": "DateTime64(6)",
    "timestamp with time zone": "DateTime64(6, 'UTC')",
}  # fmt: skip
"""ClickHouse types of PostgreSQL types; all others are read as text."""

PERMANENT_ERRORS = (
    asyncpg.SyntaxOrAccessError, asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError,
    asyncpg.IntegrityConstraintViolationError, asyncpg.CardinalityViolationError,
    asyncpg.FeatureNotSupportedError, asyncpg.ReadOnlySQLTransactionError, asyncpg.DataError,
)  # fmt: skip
"""Errors that a retry does not remove."""


@dataclass(frozen=True)
class ExternalColumn:
    """A column of a relation: its PostgreSQL type with modifiers, and whether it may be NULL."""

    name: str
    type_name: str
    nullable: bool

    @property
    def clickhouse_type(self) -> str:
        numeric = NUMERIC.fullmatch(self.type_name)
        if numeric is not None and int(numeric[1]) <= 76 and int(numeric[2]) <= int(numeric[1]):
            return f"Decimal({numeric[1]}, {numeric[2]})"
        return TYPES.get(self._plain_type, "String")

    @property
    def _plain_type(self) -> str:
        return re.sub(r"\(\d+\)", "", self.type_name)

    @property
    def expression(self) -> str:
        """The column, as text if its type has no counterpart."""
        return quote(self.name) + ("::text" if self.clickhouse_type == "String" else "")

    @property
    def is_time(self) -> bool:
        return self._plain_type in ("date", "timestamp without time zone", "timestamp with time zone")

    @property
    def is_number(self) -> bool:
        return self._plain_type in ("smallint", "integer", "bigint") or self.type_name.startswith("numeric")


def quote(name: str) -> str:
    """Quote any text as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_table(name: str) -> str:
    """Quote NAME or SCHEMA.NAME."""
    return ".".join(map(quote, name.split(".")))


@asynccontextmanager
async def connect_external(url: str) -> AsyncGenerator[Connection]:
    """Connect to a server at a public address, or at one that AAICLICK_PRIVATE_HOSTS allows.

    Its errors become errors of the task: they are no outage of this installation.
    """
    shown = _show_address(url)
    try:
        connection = await _connect(url)
        try:
            yield connection
        finally:
            await connection.close(timeout=CONNECT_SECONDS)
    except PERMANENT_ERRORS as error:
        raise PermanentError(f"PostgreSQL at {shown}: {error}.", remedy=_find_remedy(error)) from None
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise OperatorError(f"PostgreSQL at {shown}: {str(error) or type(error).__name__}.") from None


async def _connect(url: str) -> Connection:
    parts = urlsplit(url)
    host, port = str(parts.hostname), parts.port or 5432
    addresses = await _resolve(host, port)
    mode = dict(parse_qsl(parts.query)).get("sslmode", "prefer")
    is_verified = mode == "verify-full"  # then the certificate, not the address, identifies the server
    return await asyncpg.connect(
        host=host if is_verified else addresses, port=port if is_verified else [port] * len(addresses),
        user=unquote(str(parts.username)),
        password=unquote(parts.password or ""),  # never None: asyncpg would read PGPASSWORD
        database=unquote(parts.path.removeprefix("/") or str(parts.username)),
        ssl=ssl.create_default_context() if is_verified else cast("Any", mode), timeout=CONNECT_SECONDS,
        server_settings={"timezone": "UTC", "application_name": "aaiclick"},
    )  # fmt: skip


async def _resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host; all of them must be allowed."""
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise PermanentError(f"The host {host!r:.80} is not a valid name.", remedy="Correct the secret.") from None
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in resolved))
    for address in addresses:
        check_address(address, host)
    return addresses


def _show_address(url: str) -> str:
    """Host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 5432}"


def _find_remedy(error: Exception) -> str:
    match error:
        case asyncpg.InvalidAuthorizationSpecificationError():
            return "Check user and password in the secret."
        case asyncpg.CardinalityViolationError():
            return "Make the key unique in the input: several of its rows have the same key."
        case asyncpg.InsufficientPrivilegeError():
            return "Grant the user this right."
        case _:
            return "Correct the settings of the definition, or the table."


async def describe_relation(connection: Connection, relation: str, table: str | None) -> list[ExternalColumn]:
    """Return the columns of a table or of a SELECT in parentheses."""
    if table is not None:
        rows = await connection.fetch(
            "SELECT attname, format_type(atttypid, atttypmod) AS type, NOT attnotnull AS nullable FROM pg_attribute "
            "WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            relation,
        )
        return [ExternalColumn(row["attname"], row["type"], row["nullable"]) for row in rows]
    statement = await connection.prepare(f"SELECT * FROM {relation} AS source")  # noqa: S608  (the user's own query)
    attributes = statement.get_attributes()
    types = await connection.fetch(
        "SELECT format_type(oid, NULL) AS type FROM unnest($1::oid[]) WITH ORDINALITY AS given(oid, position) "
        "ORDER BY position",
        [attribute.type.oid for attribute in attributes],
    )
    return [
        ExternalColumn(attribute.name, row["type"], nullable=True)
        for attribute, row in zip(attributes, types, strict=True)
    ]


def select_columns(columns: Sequence[ExternalColumn], names: Sequence[str], relation: str) -> list[ExternalColumn]:
    """Return the named columns, or all; names that do not exist are an error."""
    by_name = {column.name: column for column in columns}
    for name in names:
        if name not in by_name:
            raise PermanentError(f"{relation} has no column {name!r:.60}.", remedy=f"It has: {', '.join(by_name)}.")
    return [by_name[name] for name in names] if names else list(columns)


def to_columns(records: Sequence[Any], columns: Sequence[ExternalColumn]) -> dict[str, list[Any]]:
    """Return records as lists of values by column."""
    return {column.name: [record[index] for record in records] for index, column in enumerate(columns)}
