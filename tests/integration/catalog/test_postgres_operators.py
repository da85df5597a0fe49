"""The operators `postgres_read` and `postgres_write` with a real PostgreSQL, reached over TCP."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from aaiclick.catalog.errors import DagError
from aaiclick.settings import get_settings
from tests.documentation import BLOCKS

TIMES = [datetime(2026, 11, 17, 9, minute, tzinfo=UTC) for minute in range(60)]
READ = """
name: shop
jobs:
  - name: customers
    activation: source
    operator: postgres_read
    source: {kind: manual}
    secrets: [crm]
    outputs: [customers]
    update_strategy: append
    unique_key: [id]
    max_attempts: 1
    config: {url: {secret: crm}, table: crm.customers, cursor: updated_at, lookback: 60}
"""
WRITE = """
name: shop
jobs:
  - name: feed
    activation: source
    operator: python
    source: {kind: manual}
    outputs: [raw]
    update_strategy: append
    unique_key: [id]
    config: {function: "tests.integration.catalog.dag_functions:fetch"}
  - name: write
    activation: reactive
    operator: postgres_write
    inputs: [raw]
    secrets: [crm]
    max_attempts: 1
    config: {url: {secret: crm}, table: crm.days, key: [id]}
"""


@pytest.fixture
async def crm(shop, aaiclick_postgres, monkeypatch):
    """The schema `crm`; the secret `crm` is the address of the server on a TCP port."""

    async def copy(reader, writer):
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def forward(reader, writer):
        path = f"{aaiclick_postgres.host}/.s.PGSQL.{aaiclick_postgres.port}"
        to_server = await asyncio.open_unix_connection(path)
        await asyncio.gather(copy(reader, to_server[1]), copy(to_server[0], writer))

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = aaiclick_postgres
    user = f"{quote(endpoint.user, safe='')}:{quote(endpoint.password, safe='')}"
    monkeypatch.setenv("AAICLICK_PRIVATE_HOSTS", "127.0.0.1")
    get_settings.cache_clear()
    await shop.grant("crm", f"postgresql://{user}@127.0.0.1:{port}/{endpoint.database}")
    await shop.db.execute("CREATE SCHEMA crm")
    yield shop
    await shop.db.execute("DROP SCHEMA crm CASCADE")
    server.close()
    await server.wait_closed()


async def create_customers(shop):
    await shop.db.execute(
        "CREATE TABLE crm.customers (id bigint PRIMARY KEY, name text, credit numeric(12, 2), notes jsonb, "
        "updated_at timestamptz)"
    )
    rows = [(number, f"c{number}", number, "{}", TIMES[number]) for number in range(5)]
    await shop.db.executemany("INSERT INTO crm.customers VALUES ($1, $2, $3, $4, $5)", rows)


async def test_changed_rows_are_read_since_the_cursor(crm):
    await create_customers(crm)
    await crm.deploy(READ)
    await crm.run()
    assert [row[:2] for row in await crm.rows("shop.customers")] == [(number, f"c{number}") for number in range(5)]
    await crm.db.execute("UPDATE crm.customers SET name = 'new', updated_at = $1 WHERE id = 2", TIMES[10])
    await crm.db.execute("INSERT INTO crm.customers VALUES (7, NULL, NULL, NULL, $1)", TIMES[11])
    await crm.db.execute("INSERT INTO crm.customers VALUES (8, 'unseen', 1, NULL, $1)", TIMES[0])  # before the lookback
    await crm.run()
    names = {row[0]: row[1] for row in await crm.rows("shop.customers")}
    assert names == {0: "c0", 1: "c1", 2: "new", 3: "c3", 4: "c4", 7: None}
    logs = await crm.db.fetch("SELECT state FROM operator_state")
    assert "09:11:00" in logs[0]["state"]
    await crm.check()


async def test_values_of_all_types_are_exact(crm):
    await crm.db.execute(
        "CREATE TABLE crm.all_types AS SELECT 1::smallint a, 2::int b, 3::bigint c, 1.5::float4 d, 2.5::float8 e, "
        "true f, 'x'::varchar(3) g, 12.30::numeric(10, 2) h, 0.1::numeric i, date '2026-11-17' j, "
        "timestamptz '2026-11-17 09:00+01' k, timestamp '2026-11-17 09:00' l, "
        "'6f2c1c1e-0000-4000-8000-000000000001'::uuid m, '{\"a\": 1}'::jsonb n, '{1,2}'::int[] o, NULL::text p, "
        "interval '1 month' q"
    )
    text = READ.replace("table: crm.customers, cursor: updated_at, lookback: 60", "table: crm.all_types")
    await crm.deploy(text.replace("update_strategy: append\n    unique_key: [id]", "update_strategy: replace"))
    await crm.run()
    (row,) = await crm.rows("shop.customers")
    text = [str(value) for value in row]
    assert text[:9] == ["1", "2", "3", "1.5", "2.5", "True", "x", "12.30", "0.1"]
    assert text[9:12] == ["2026-11-17", "2026-11-17 08:00:00", "2026-11-17 09:00:00"]
    assert text[13:] == ['{"a": 1}', "{1,2}", "None", "1 mon"]


async def test_query_without_cursor_replaces_all_rows(crm):
    await create_customers(crm)
    query = READ.replace(
        "table: crm.customers, cursor: updated_at, lookback: 60", 'query: "SELECT id FROM crm.customers WHERE id < 3"'
    )
    await crm.deploy(query.replace("update_strategy: append\n    unique_key: [id]", "update_strategy: replace"))
    await crm.run()
    assert await crm.rows("shop.customers") == [(0,), (1,), (2,)]
    await crm.db.execute("DELETE FROM crm.customers")
    await crm.run()
    assert await crm.rows("shop.customers") == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("crm.customers", "crm.missing", 'relation "crm.missing" does not exist'),
        ("cursor: updated_at", "cursor: changed", "has no column 'changed'"),
        ("cursor: updated_at", "cursor: name", "is of type text"),
        ("table: crm.customers", 'query: "DELETE FROM crm.customers RETURNING *"', "syntax error"),
        ("table: crm.customers", "query: \"SELECT *, setval('crm.s', 7) FROM crm.customers\"", "read-only transaction"),
    ],
)
async def test_mistake_fails_the_task_with_a_remedy(crm, old, new, message):
    await create_customers(crm)
    await crm.db.execute("CREATE SEQUENCE crm.s")
    await crm.deploy(READ.replace(old, new))
    assert await crm.finish(await crm.fire()) == "FAILED"
    (error,) = await crm.errors()
    assert message in error


async def test_private_server_needs_permission_of_the_operator(crm, monkeypatch):
    monkeypatch.setenv("AAICLICK_PRIVATE_HOSTS", "10.0.0.0/8")
    get_settings.cache_clear()
    await crm.deploy(READ)
    assert await crm.finish(await crm.fire()) == "FAILED"
    (error,) = await crm.errors()
    assert "AAICLICK_PRIVATE_HOSTS" in error


async def test_unreachable_server_is_a_failure_of_the_task(crm):
    await crm.grant("crm", "postgresql://ada:canary-password@127.0.0.1:1/crm")
    await crm.deploy(READ)
    assert await crm.finish(await crm.fire()) == "FAILED"
    (error,) = await crm.errors()
    assert "PostgreSQL at 127.0.0.1:1" in error
    assert "canary-password" not in error


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table: crm.customers", "query: SELECT 1, table: t", "Give either table or query"),
        ("update_strategy: append\n    unique_key: [id]", "update_strategy: replace", "cursor needs update_strategy"),
        ("{secret: crm}", "mysql://ada@db/crm", "postgresql://USER"),
        ("{secret: crm}", "'postgresql://ada@db/crm?host=/tmp'", "only option"),
    ],
)
async def test_wrong_settings_are_refused_by_the_deploy(shop, old, new, message):
    with pytest.raises(DagError, match=message):
        await shop.deploy(READ.replace(old, new, 1))


async def test_rows_are_inserted_or_updated_by_key(crm):
    await crm.db.execute("CREATE TABLE crm.days (id bigint PRIMARY KEY, day text, amount numeric, note text)")
    await crm.db.execute("INSERT INTO crm.days VALUES (1, 'old', 1, 'kept'), (99, 'other', 1, 'kept')")
    await crm.deploy(WRITE)
    await crm.run({"id": 1, "day": "mon", "amount": 5}, {"id": 2, "day": "tue", "amount": 6})
    rows = await crm.db.fetch("SELECT * FROM crm.days ORDER BY id")
    assert [tuple(row) for row in rows] == [(1, "mon", 5, "kept"), (2, "tue", 6, None), (99, "other", 1, "kept")]
    await crm.check()


async def test_all_rows_are_replaced_in_one_transaction(crm):
    await crm.db.execute("CREATE TABLE crm.days (id bigint, day text, amount bigint CHECK (amount < 100))")
    await crm.db.execute("INSERT INTO crm.days VALUES (99, 'old', 1)")
    await crm.deploy(WRITE.replace(", key: [id]", ", mode: replace"))
    await crm.run({"id": 1, "day": "mon", "amount": 5})
    assert await crm.db.fetchval("SELECT array_agg(id) FROM crm.days") == [1]
    assert await crm.finish(await crm.fire({"rows": [{"id": 2, "day": "tue", "amount": 100}]})) == "FAILED"
    assert await crm.db.fetchval("SELECT array_agg(id) FROM crm.days") == [1]
    assert "days_amount_check" in " ".join(await crm.errors())


async def test_column_that_the_table_lacks_is_named(crm):
    await crm.db.execute("CREATE TABLE crm.days (id bigint PRIMARY KEY, day text)")
    await crm.deploy(WRITE)
    assert await crm.finish(await crm.fire({"rows": [{"id": 2, "day": "tue", "amount": 1}]})) == "FAILED"
    assert "has no column 'amount'.\nIt has: id, day." in " ".join(await crm.errors())


async def test_documented_dag_reads_and_writes(crm):
    (text,) = [block.text for block in BLOCKS if block.page == "connectors.md" and "postgres_read" in block.text]
    await crm.db.execute(
        "CREATE TABLE crm.customers (id int PRIMARY KEY, city text, updated_at timestamptz);"
        "CREATE TABLE crm.city_totals (city text PRIMARY KEY, customers bigint);"
        "INSERT INTO crm.customers VALUES (1, 'Bari', now()), (2, 'Cork', now()), (3, 'Cork', now())"
    )
    await crm.deploy(text.replace("crm-database", "crm").replace("public.", "crm."))
    await crm.run(dag="crm")
    rows = await crm.db.fetch("SELECT * FROM crm.city_totals ORDER BY city")
    assert [tuple(row) for row in rows] == [("Bari", 1), ("Cork", 2)]
