"""Types that are registered with the driver."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from aaiclick.store import asyncpg_types
from aaiclick.store.postgres_connections import connect
from aaiclick.store.statements import statement

ENUMS = "SELECT typname::text AS name FROM pg_type WHERE typtype = 'e' AND typnamespace = 'public'::regnamespace"
VALUES = {
    "bool": [True, None],
    "int2": [1],
    "int4": [-1, 2**31 - 1],
    "int8": [2**63 - 1],
    "float8": [0.5],
    "timestamptz": [datetime(2026, 11, 16, tzinfo=UTC)],
    "uuid": [UUID(int=7)],
    "jsonb": ['{"a": 1}'],
}


@pytest.fixture
async def connection(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


@pytest.fixture
def without_introspection(monkeypatch):
    async def refuse(*_: object) -> None:
        raise AssertionError("the driver has introspected types")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", refuse)


@pytest.mark.usefixtures("without_introspection")
async def test_array_types_are_registered(connection):
    assert set(VALUES) == {name for name, _ in asyncpg_types.ARRAY_TYPES.values()}
    for name, values in VALUES.items():
        assert await connection.fetchval(f"SELECT $1::{name}[]", values) == values
        assert await connection.fetchval(f"SELECT $1::{name}[]", []) == []


async def test_enum_types_and_their_arrays_are_registered(connection, request):
    names = {row["name"] for row in await connection.fetch(ENUMS)}
    assert names == {row["name"] for row in await connection.fetch(statement("list_enum_types"))}
    request.getfixturevalue("without_introspection")
    for name in names:
        first = await connection.fetchval(f"SELECT (enum_range(NULL::{name}))[1]")
        assert await connection.fetchval(f"SELECT $1::{name}", first) == first
        assert await connection.fetchval(f"SELECT $1::{name}[]", [first, first]) == [first, first]


async def test_unregistered_types_are_introspected(connection):
    await connection.execute("CREATE TYPE colour AS ENUM ('red', 'blue')")
    assert await connection.fetchval("SELECT $1::colour[]", ["red"]) == ["red"]


async def test_other_driver_version_introspects_types(aaiclick_postgres, monkeypatch):
    class OtherDriver:
        _protocol = None

        async def fetch(self, *_: object) -> list[dict[str, int]]:
            return [{"pid": 7}]

    assert await asyncpg_types.register_types(OtherDriver()) == 7  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(asyncpg_types, "ARRAY_TYPES", {})
    connection = await connect(aaiclick_postgres)
    assert await connection.fetchval("SELECT $1::bigint[]", [1]) == [1]
    await connection.close()
