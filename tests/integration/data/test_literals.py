"""Literals: small Objects that are part of queries, and become tables only when something needs one."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from aaiclick.data import DataContext, View, col, create_object_from_value, insert, open_object
from aaiclick.data.errors import ConversionError, ObjectNotFoundError
from aaiclick.data.io.literal_result_codec import EncodedLiteral, convert_value, encode_converted, encode_simple
from aaiclick.data.object import Object
from aaiclick.data.runtime.tables import new_table_name
from aaiclick.settings import get_settings

MAX_BYTES = 65_536

VALUES = [
    5, -1.5, "text", "", "é 🦆 '\\\n", True, None, b"\x00\xff", date(1930, 2, 28), Decimal("12.345"),
    datetime(2024, 2, 29, 1, 2, 3, 456789), datetime(2024, 2, 29, tzinfo=UTC),
    UUID("12345678-1234-5678-1234-567812345678"), 2**64 - 1, float("inf"),
    [1, 2, 3], [1, None, 3], ["a", None], [1.5, 2], [True, False], [], [[1, 2], []], [date(2024, 1, 1), None],
    {"a": 1, "b": "x"}, {"a": [1, 2], "b": ["x", None]}, [{"a": 1, "b": 2.5}, {"a": 2, "b": None}],
    [[1], None], {"a": [{"x": 1}, None]}, {"nested": {"x": [1, 2]}}, [{"a": 1}, {"b": [{"c": None}]}],
    np.array([1, 2, 3]), np.int32(7), pd.DataFrame({"x": [1, 2], "s": ["a", None]}), pd.DataFrame({"x": []}),
]  # fmt: skip


@pytest.fixture
async def literals(clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint, max_literal_bytes=MAX_BYTES) as context:
        yield context


async def list_tables(context: DataContext) -> list[str]:
    query = "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 't%'"
    return (await context.client.read_text(query)).column(0).to_pylist()


async def read_all_ways(obj: Object) -> list[object]:
    arrow = await obj.to_arrow()
    return [
        obj.shape,
        obj.schema,
        repr(await obj.data()),
        repr(await obj.rows()),
        arrow.schema,
        arrow,
        await obj.count(),
    ]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{value!r:.30}")
async def test_a_literal_reads_like_a_table(clickhouse_endpoint, value):
    async with DataContext(clickhouse_endpoint):
        expected = await read_all_ways(await create_object_from_value(value))
    async with DataContext(clickhouse_endpoint, max_literal_bytes=MAX_BYTES) as context:
        obj = await create_object_from_value(value)
        assert await read_all_ways(obj) == expected
        assert await list_tables(context) == []
        await context.store_literal(obj.relation.table)
        assert await read_all_ways(obj) == expected
        assert await list_tables(context) == [obj.table_id]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{value!r:.30}")
def test_encoded_literals_decode_to_equal_rows(value):
    rows = convert_value(value)
    text = encode_simple(value, MAX_BYTES) or encode_converted(value, rows, MAX_BYTES)
    assert text is not None
    decoded = EncodedLiteral("t1", text).rows()
    assert (decoded.columns, decoded.shape) == (rows.columns, rows.shape)
    assert decoded.table.equals(rows.table)


@pytest.mark.parametrize("value", [2**70, {1: "a"}, ["a", 1, {2}], "\ud800"], ids=["wide", "keys", "set", "surrogate"])
def test_values_that_no_object_can_hold_are_not_encoded(value):
    assert encode_simple(value, MAX_BYTES) is None
    with pytest.raises(ConversionError):
        convert_value(value)


def test_values_above_the_limit_are_not_encoded():
    assert encode_simple("x" * 100, 50) is None
    assert encode_converted([["x" * 100]], convert_value([["x" * 100]]), 50) is None
    assert encode_converted(np.arange(100), convert_value(np.arange(100)), 50) is None


async def test_queries_combine_literals_with_tables(literals):
    small = await create_object_from_value({"id": [1, 2, 3], "name": ["a", "b", None]})
    literals.max_literal_bytes = -1
    large = await create_object_from_value({"id": [3, 1, 1], "x": [1.5, 2.5, 3.5]})
    joined = large.join(small, on="id")
    assert await joined.rows() == [
        {"id": 3, "x": 1.5, "name": None},
        {"id": 1, "x": 2.5, "name": "a"},
        {"id": 1, "x": 3.5, "name": "a"},
    ]
    assert await (small["id"] + large["id"]).data() == [4, 3, 4]
    assert await small.filter(col("id") > 1).sort("id", descending=True)["id"].data() == [3, 2]
    assert await (large["x"] * small["id"].max()).data() == [4.5, 7.5, 10.5]
    assert small.table_id not in await list_tables(literals)


async def test_a_scalar_result_is_a_literal(literals):
    total = await (await create_object_from_value([1, 2, 3])).sum()
    stored = await (total + 1)
    assert await stored.data() == 7
    assert await list_tables(literals) == []


async def test_views_of_a_literal_select_its_rows(literals):
    obj = await create_object_from_value(list(range(10)))
    assert await View(obj, 2, 3).data() == [2, 3, 4]
    assert await View(obj, 1, 2, "value > 4").data() == [6, 7]
    assert await obj[7:].data() == [7, 8, 9]


async def test_appending_to_a_literal_stores_it(literals):
    obj = await create_object_from_value([1, 2])
    assert await insert(obj, [3]) == 3
    assert await obj.data() == [1, 2, 3]
    async with asyncio.timeout(10):  # the staged rows are dropped in the background
        while await list_tables(literals) != [obj.table_id]:  # noqa: ASYNC110  (there is no notification)
            await asyncio.sleep(0.01)


async def test_a_named_literal_is_a_table(literals):
    await create_object_from_value([1, 2], name="kept")
    assert await (await open_object("kept")).data() == [1, 2]


async def test_many_literals_in_one_query_are_stored(literals):
    objects = [await create_object_from_value(["x" * 1_000 + str(i)] * 60) for i in range(6)]
    joined = objects[0]
    for other in objects[1:]:
        joined = joined.concat(other)
    assert await joined.count() == 360
    assert len(await list_tables(literals)) == 6


async def test_unknown_tables_are_still_errors(literals, aaiclick_env):
    with pytest.raises(ObjectNotFoundError, match="There is no Object 't1'"):
        await literals.open_table("t1")


async def test_unknown_table_without_postgres_says_so(literals, aaiclick_env, monkeypatch):
    monkeypatch.setenv("AAICLICK_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/nothing")
    get_settings.cache_clear()
    with pytest.raises(ObjectNotFoundError, match="small result, but these are not accessible"):
        await literals.open_table("t1")


class Store:
    """A store of literals that grants every reservation, as after an abandoned one."""

    def __init__(self) -> None:
        self.abandoned = 0
        self.replaced = 0

    async def load_literals(self, table_names):
        return {}

    async def reserve_literal(self, table_name):
        return True

    async def replace_literal(self, table_name):
        self.replaced += 1

    async def abandon_literal(self, table_name):
        self.abandoned += 1


@pytest.fixture
def store(monkeypatch):
    store = Store()
    monkeypatch.setattr("aaiclick.data.context.find_literal_store", lambda: store)
    return store


async def test_statements_of_an_earlier_caller_change_nothing(clickhouse_endpoint, store):
    """A caller that lost its reservation goes on: it neither drops nor replaces the table of the second one."""
    literal = EncodedLiteral(new_table_name(), '{"value": [1, 2]}')
    async with DataContext(clickhouse_endpoint) as first, DataContext(clickhouse_endpoint) as second:
        late, table = first.open_literal(literal), second.open_literal(literal)
        statements: list[str] = []
        is_second_running = asyncio.Event()
        run = first.client.run  # the same client as the second one's

        async def run_after_the_second_caller(text, *arguments, **options):
            statements.append(text)
            if "RENAME" in text and table.literal is not None and not is_second_running.is_set():
                is_second_running.set()
                await second.store_literal(table)
                await insert(Object.from_table(table), [3])
            return await run(text, *arguments, **options)

        first.client.run = run_after_the_second_caller
        try:
            await first.store_literal(late)
        finally:
            del first.client.run
        assert await Object.from_table(late).data() == [1, 2, 3]
        assert not [text for text in statements if text.startswith("DROP TABLE") and literal.table_id in text]
        assert store.replaced == 2
        names = await list_tables(second)
        assert names == [literal.table_id]


async def test_a_literal_that_becomes_a_table_between_two_lookups_is_found(clickhouse_endpoint, store):
    literal = EncodedLiteral(new_table_name(), '{"value": [1, 2]}')
    async with DataContext(clickhouse_endpoint) as writer, DataContext(clickhouse_endpoint) as reader:
        table = writer.open_literal(literal)

        async def load_after_replacement(table_names):
            await writer.store_literal(table)
            return {}

        store.load_literals = load_after_replacement
        assert await Object.from_table(await reader.open_table(literal.table_id)).data() == [1, 2]


async def test_a_lost_response_to_the_rename_is_no_loss(clickhouse_endpoint, store):
    literal = EncodedLiteral(new_table_name(), '{"value": [1, 2]}')
    async with DataContext(clickhouse_endpoint) as context:
        table = context.open_literal(literal)
        run = context.client.run

        async def lose_response(text, *arguments, **options):
            answer = await run(text, *arguments, **options)
            if "RENAME" in text:
                raise ConnectionResetError("lost")
            return answer

        context.client.run = lose_response
        with pytest.raises(ConnectionResetError):
            await context.store_literal(table)
        del context.client.run
        assert (store.abandoned, store.replaced) == (1, 0)
        assert await Object.from_table(table).data() == [1, 2]
        await context.store_literal(table)
        assert store.replaced == 1
        assert await Object.from_table(table).data() == [1, 2]
