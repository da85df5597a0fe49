"""What the driver knows about types without asking."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from aaiclick.store import wire
from aaiclick.store.engine import connect
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
def asks_nothing(monkeypatch):
    async def refuse(*_: object) -> None:
        raise AssertionError("the driver has asked")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", refuse)


@pytest.mark.usefixtures("asks_nothing")
async def test_arrays_are_known(connection):
    assert set(VALUES) == {name for name, _ in wire.ARRAYS.values()}
    for name, values in VALUES.items():
        assert await connection.fetchval(f"SELECT $1::{name}[]", values) == values
        assert await connection.fetchval(f"SELECT $1::{name}[]", []) == []


async def test_all_enums_and_arrays_of_them_are_known(connection, request):
    found = {row["name"] for row in await connection.fetch(ENUMS)}
    assert found == {row["name"] for row in await connection.fetch(statement("enum_types"))}
    request.getfixturevalue("asks_nothing")
    for name in found:
        first = await connection.fetchval(f"SELECT (enum_range(NULL::{name}))[1]")
        assert await connection.fetchval(f"SELECT $1::{name}", first) == first
        assert await connection.fetchval(f"SELECT $1::{name}[]", [first, first]) == [first, first]


async def test_what_is_not_known_is_asked_for(connection):
    await connection.execute("CREATE TYPE colour AS ENUM ('red', 'blue')")
    assert await connection.fetchval("SELECT $1::colour[]", ["red"]) == ["red"]


async def test_a_driver_that_does_not_listen_asks_as_it_always_did(aaiclick_postgres, monkeypatch):
    class Deaf:
        _protocol = None

        async def fetch(self, *_: object) -> list[dict[str, int]]:
            return [{"pid": 7}]

    assert await wire.introduce(Deaf()) == 7  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(wire, "ARRAYS", {})
    connection = await connect(aaiclick_postgres)
    assert await connection.fetchval("SELECT $1::bigint[]", [1]) == [1]
    await connection.close()
