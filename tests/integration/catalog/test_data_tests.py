"""Data tests of outputs: blocked, quarantined and reported rows, before any of them is published."""

from __future__ import annotations

import pytest

from aaiclick import failpoints
from aaiclick.catalog import dataset_queries
from aaiclick.catalog.execution import data_test_gate
from aaiclick.errors import headline
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.catalog import definition_runs
from aaiclick.store.catalog.data_test_results import write_test_results
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.catalog.definition_runs import PublishOutcome
from aaiclick.store.engine import queue
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement
from tests.integration.catalog.conftest import JOBS

TESTED = """
name: shop
jobs:
  - name: customers
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [customers]
    config: {{function: "{jobs}:fetch"}}
  - name: fetch
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs:
      - name: orders
        tests:
{tests}
    {strategy}
    config: {{function: "{jobs}:fetch"}}
"""
APPEND = "update_strategy: append\n    unique_key: [id]"
SINGLE_ATTEMPTS = "name: shop\ndefaults: {max_attempts: 1}"


def make_dag(*tests, strategy=""):
    lines = "\n".join(f"          - {test}" for test in tests)
    return TESTED.format(tests=lines, strategy=strategy, jobs=JOBS)


def row(number, euros, customer="ann"):
    return {"id": number, "euros": euros, "customer": customer}


async def results(shop, **filters):
    rows = await shop.db.fetch("SELECT * FROM data_test_results ORDER BY id")
    return [record for record in rows if all(record[name] == value for name, value in filters.items())]


async def outcomes(shop):
    """Outcomes of the tests of the last update."""
    return [record["outcome"] for record in await results(shop, latest=True)]


async def update(shop, *rows):
    job_id = await shop.fire({"rows": list(rows)}, "fetch")
    return job_id, await shop.finish(job_id)


async def test_failed_test_blocks_the_update_and_fails_the_task_at_once(shop):
    await shop.deploy(make_dag("unique: [id]", "between: {column: euros, low: 0}"))
    await shop.run(row(1, 5), row(2, 7), job="fetch")
    before = await shop.rows("shop.orders")
    job_id, status = await update(shop, row(1, 5), row(1, -2))
    assert status == "FAILED"
    task = await shop.db.fetchrow("SELECT * FROM tasks WHERE job_id = $1", job_id)
    assert (task["attempt"], task["status"]) == (1, "FAILED")
    assert headline(task["error"]) == (
        "DataTestError: The data tests of shop.orders failed, and no row was published: unique: id (1 row repeats "
        "the id of another row); between: euros from 0 (1 row failed)."
    )
    assert task["error_fingerprint"].startswith("DataTestError:")
    assert await shop.rows("shop.orders") == before != []
    blocked = await results(shop, outcome="blocked", latest=True)
    assert [(record["test"], record["failing_rows"], record["published"]) for record in blocked] == [
        ("unique: id", 1, False),
        ("between: euros from 0", 1, False),
    ]
    sample = await shop.clickhouse.read_text(f'SELECT id, euros FROM "{blocked[1]["sample_table"]}"')
    assert sample.to_pylist() == [{"id": 1, "euros": -2}]
    await shop.run(row(1, 5), job="fetch")
    assert await outcomes(shop) == ["passed", "passed"]
    await shop.check()


async def test_task_of_the_same_name_does_not_replace_results_of_an_output(shop):
    await shop.deploy(make_dag("unique: [id]"))
    await update(shop, row(1, 5), row(1, 7))
    task_id = get_snowflake_id()
    await enqueue_tasks(shop.db, [NewTask(task_id, "shop.orders", "m.m")])
    test = {
        "test": "unique: id", "on_failure": "block", "outcome": "passed", "rows": 1, "failing_rows": 0, "message": "",
        "number": 0, "sample": None, "output": "", "dataset": None, "partition": "", "published": True,
    }  # fmt: skip
    await write_test_results(shop.db, [((task_id, 1), [test])])
    assert await outcomes(shop) == ["blocked", "passed"]


async def test_quarantined_rows_go_to_the_rejected_dataset_with_the_reason(shop):
    quarantine = "between: {column: euros, low: 0, on_failure: quarantine}"
    await shop.deploy(make_dag(quarantine, "not_null: [customer]"))
    await shop.run(row(1, 5), row(2, -7, None), job="fetch")
    assert await shop.rows("shop.orders") == [(1, 5, "ann")]
    assert await shop.rows("shop.orders__rejected") == [(2, -7, None, ["between: euros from 0"])]
    assert await outcomes(shop) == ["quarantined", "passed"]
    await shop.run(row(3, 9), job="fetch")
    assert await shop.rows("shop.orders__rejected") == []
    await shop.check()


async def test_appended_rows_are_tested_against_the_rows_that_stay(shop):
    unique = "unique: [customer]"
    await shop.deploy(make_dag(f"{unique}\n            on_failure: quarantine", strategy=APPEND))
    await shop.run(row(1, 5, "ann"), row(2, 7, "bob"), job="fetch")
    await shop.run(row(2, 8, "bob"), row(3, 9, "ann"), job="fetch")  # 2 replaces its own row, 3 repeats ann
    assert await shop.rows("shop.orders") == [(1, 5, "ann"), (2, 8, "bob")]
    assert [values[:4] for values in await shop.rows("shop.orders__rejected")] == [(3, 9, "ann", ["unique: customer"])]
    await shop.run(row(3, 9, "ann"), job="fetch")  # rejected again: stored once
    assert len(await shop.rows("shop.orders__rejected")) == 1


async def test_rows_published_during_the_tests_are_tested_too(shop, monkeypatch):
    await shop.deploy(make_dag("unique: [customer]", strategy=APPEND))
    await shop.run(row(1, 5, "ann"), job="fetch")
    run_tests, verdicts = data_test_gate.run_tests, []

    async def publish_meanwhile(*arguments):
        verdicts.append(await run_tests(*arguments))
        if len(verdicts) == 1:
            await shop.db.execute("UPDATE dataset_versions SET publishes = publishes + 1 WHERE publishes > 0")
        return verdicts[-1]

    monkeypatch.setattr(data_test_gate, "run_tests", publish_meanwhile)
    await shop.run(row(2, 7, "bob"), job="fetch")
    assert len(verdicts) == 2
    assert await shop.rows("shop.orders") == [(1, 5, "ann"), (2, 7, "bob")]


async def test_rows_of_an_uncounted_publication_are_tested_too(shop, monkeypatch):
    """Another worker dies after its rows became public and before the commit that counts them."""
    await shop.deploy(make_dag("unique: [customer]", strategy=APPEND).replace("name: shop", SINGLE_ATTEMPTS))
    await shop.run(row(1, 5, "ann"), job="fetch")
    run_tests, tested = data_test_gate.run_tests, []

    async def publish_meanwhile(*arguments):
        verdict = await run_tests(*arguments)
        tested.append(verdict)
        if len(tested) == 1:
            failpoints.arm_faults("publish.before=error", None)
            other = await shop.fire({"rows": [row(2, 7, "bob")]}, "fetch")
            await shop.until("SELECT completed_at IS NOT NULL FROM jobs WHERE id = $1", other)
        return verdict

    monkeypatch.setattr(data_test_gate, "run_tests", publish_meanwhile)
    try:
        _, status = await update(shop, row(3, 9, "bob"))
    finally:
        failpoints.arm_faults("", None)
    assert status == "FAILED"
    assert len(tested) == 3  # its own rows, those of the other task, and its own again
    assert await shop.rows("shop.orders") == [(1, 5, "ann"), (2, 7, "bob")]
    await shop.run(row(2, 8, "bob"), job="fetch")
    assert await shop.rows("shop.orders") == [(1, 5, "ann"), (2, 8, "bob")]


async def test_announced_publication_is_awaited_or_settled(shop, monkeypatch):
    """Another attempt has announced a publication: it lives first, then it has lost its lease."""
    await shop.deploy(make_dag("unique: [customer]", strategy=APPEND))
    await shop.run(row(1, 5, "ann"), job="fetch")
    announce, outcomes_seen = definition_runs.announce_publish, []
    await shop.clickhouse.run("CREATE TABLE announced (id Int64) ENGINE = MergeTree ORDER BY id")
    await shop.fire({"rows": [row(9, 9)]}, "customers")
    worker = await queue.register_worker(shop.db, hostname="other", pid=1)
    (other,) = await queue.claim(shop.db, worker_id=worker.id, limit=1, queues=(), lease_seconds=600)

    async def announce_after_another(connection, lease, generation, *arguments):
        if not outcomes_seen:
            intent = ("announced", other.lease.task_id, other.lease.token)
            await shop.db.execute(statement("set_publish_intent"), generation, *intent)
        elif outcomes_seen == [PublishOutcome.BUSY]:
            await shop.clickhouse.read_text("SELECT count() FROM announced")
            await shop.db.execute("UPDATE dataset_versions SET publishing_lease = gen_random_uuid()")
        outcomes_seen.append(await announce(connection, lease, generation, *arguments))
        return outcomes_seen[-1]

    monkeypatch.setattr(definition_runs, "announce_publish", announce_after_another)
    await shop.run(row(2, 7, "bob"), job="fetch")
    assert outcomes_seen == [PublishOutcome.BUSY, PublishOutcome.STALE, PublishOutcome.PUBLISHED]
    tables = await shop.clickhouse.read_text("SELECT count() AS tables FROM system.tables WHERE name = 'announced'")
    assert tables.to_pylist() == [{"tables": 0}]
    versions = await shop.db.fetch("SELECT publishes, publishing_table FROM dataset_versions WHERE publishes > 0")
    assert [tuple(version) for version in versions] == [(3, None)]


@pytest.mark.parametrize(
    ("test", "rows", "outcome"),
    [
        ("not_null: customer", [row(1, 1, None)], "blocked"),
        ("accepted: {column: customer, values: [ann, bob]}", [row(1, 1, "eve")], "blocked"),
        ("accepted: {column: customer, values: [ann, bob]}", [row(1, 1, None), row(2, 1, "bob")], "passed"),
        ("matches: {column: customer, pattern: '[a-z]+'}", [row(1, 1, "ann1")], "blocked"),
        ("matches: {column: customer, pattern: '[a-z]+'}", [row(1, 1, "ann")], "passed"),
        ("matches: {column: customer, pattern: 'a.b'}", [row(1, 1, "a\nb")], "blocked"),
        ("rows: {at_least: 2}", [row(1, 1)], "blocked"),
        ("rows: {at_most: 1, on_failure: warn}", [row(1, 1), row(2, 1)], "warned"),
        ("references: {customer: customers.name}", [row(1, 1, "ann")], "passed"),
        ("references: {customer: customers.name}", [row(1, 1, "eve")], "blocked"),
        ("freshness_of: {column: day, max_age: 2d}", [{"day": "2020-01-01"}], "blocked"),
        ("sql: SELECT id FROM this WHERE euros > 9", [row(1, 10)], "blocked"),
        ("sql: SELECT o.id FROM orders AS o JOIN customers AS c ON c.name = o.customer", [row(1, 1, "eve")], "passed"),
    ],
)
async def test_each_test_passes_and_fails(shop, test, rows, outcome):
    dag = make_dag(test)
    if "day" in test:
        dag = dag.replace("name: orders", "name: orders\n        columns: {day: Date}")
    await shop.deploy(dag)
    if "customers" in test:
        await shop.run({"name": "ann"}, job="customers")
    _, status = await update(shop, *rows)
    assert status == ("FAILED" if outcome == "blocked" else "COMPLETED"), await shop.errors()
    assert await outcomes(shop) == [outcome]


REFERRING = """
name: shop
defaults: {{max_attempts: 3}}
jobs:
  - name: known
    activation: source
    operator: sql
    source: {{kind: manual}}
    outputs: [known]
    config: {{query: "SELECT {other} AS id"}}
  - name: fetch
    activation: source
    operator: sql
    source: {{kind: manual}}
    outputs: [{{name: orders, tests: [{test}]}}]
    config: {{query: "SELECT {value} AS x"}}
"""


@pytest.mark.parametrize(
    ("value", "other", "is_known"),
    [
        ("toDecimal64('1.234', 3)", "toDecimal64('1.23', 2)", False),
        ("toDecimal64('1.230', 3)", "toDecimal64('1.23', 2)", True),
        ("toDecimal64('1.5', 1)", "1", False),
        ("toDecimal64('1.0', 1)", "1", True),
        ("1.234", "toDecimal64('1.23', 2)", False),
        ("1.5", "toDecimal64('1.5', 2)", True),
        ("toDateTime('2026-01-01 12:00:00', 'UTC')", "toDate('2026-01-01')", False),
        ("toDateTime('2026-01-01 00:00:00', 'UTC')", "toDate('2026-01-01')", True),
        ("toDateTime64('2026-01-01 12:00:00.5', 3, 'UTC')", "toDate32('2026-01-01')", False),
        ("toDateTime64('2026-01-01 12:00:00.5', 3, 'UTC')", "toDateTime('2026-01-01 12:00:00', 'UTC')", False),
        ("toDateTime64('2026-01-01 12:00:00.0', 3, 'UTC')", "toDateTime('2026-01-01 12:00:00', 'UTC')", True),
        ("toNullable(toDecimal64('1.234', 3))", "toNullable(toDecimal64('1.23', 2))", False),
        ("257", "toUInt8(1)", False),
        ("'1'", "1", True),
    ],
)
async def test_reference_is_found_by_the_whole_value(shop, value, other, is_known):
    """ClickHouse's IN drops digits of Decimals and times of day."""
    await shop.deploy(REFERRING.format(test="{references: {x: known.id}}", value=value, other=other))
    await shop.run(job="known")
    assert (await shop.finish(await shop.fire(None, "fetch")) == "COMPLETED") is is_known, await shop.errors()
    assert await outcomes(shop) == ["passed" if is_known else "blocked"], await shop.errors()


@pytest.mark.parametrize(
    ("test", "value", "message"),
    [
        ("{between: {column: x, low: yesterday}}", "toDate('2026-01-01')", "'between: x from yesterday' does not fit"),
        ("{between: {column: x, low: 0}}", "'a'", "The data test 'between: x from 0' does not fit its column."),
        ("{between: {column: x, low: 0}}", "[1]", "The data test 'between: x from 0' does not fit its column."),
        ("{accepted: {column: x, values: [1, a]}}", "1", "The data test 'accepted: x in 1, a' does not fit"),
        ("{freshness_of: {column: x, max_age: 1d}}", "'abc'", "The data test 'freshness_of: x within 86,400 s' does"),
        ("{references: {x: known.key}}", "1", "There is no column 'known.key'."),
        ("{sql: SELECT 5 AS y FROM this, on_failure: quarantine}", "1", "SELECT * FROM this WHERE"),
    ],
)
async def test_test_that_does_not_fit_its_column_is_named_and_not_retried(shop, test, value, message):
    await shop.deploy(REFERRING.format(test=test, value=value, other="1"))
    await shop.run(job="known")
    job_id = await shop.fire(None, "fetch")
    assert await shop.finish(job_id) == "FAILED"
    task = await shop.db.fetchrow("SELECT attempt, error FROM tasks WHERE job_id = $1", job_id)
    assert task["attempt"] == 1
    assert message in task["error"]
    assert await shop.rows("shop.orders") is None


async def test_results_and_freshness_are_datasets_for_readers_of_the_output(shop):
    fresh = "name: orders\n        freshness: {max_age: 2h}"
    await shop.deploy(make_dag("unique: [id]").replace("name: orders", fresh) + "publish: [orders]\n")
    await update(shop, row(1, 5), row(2, 7))
    await update(shop, row(1, 5), row(1, 7))
    await shop.db.execute("UPDATE datasets SET read_roles = '{sales}' WHERE name = 'orders'")
    tests = "SELECT dataset, test, outcome, rows, failing_rows, published FROM aaiclick.tests ORDER BY id"
    freshness = "SELECT dataset, state, due_at - updated_at AS seconds, causes FROM aaiclick.freshness"

    async def query(text, roles):
        reader = Reader(DEFAULT_ORG_ID, roles)
        result = await dataset_queries.run_query(shop.db, shop.clickhouse, reader, text)
        return [tuple(values.values()) for values in result.to_pylist()]

    results_ = [
        ("orders", "unique: id", "passed", 2, 0, True),
        ("orders", "unique: id", "blocked", 2, 1, False),
    ]
    for roles in (None, frozenset({"sales", "finance"})):
        assert await query(tests, roles) == results_
        assert await query(freshness, roles) == [("orders", "fresh", 7200, [])]
        joined = "SELECT count() FROM orders AS o CROSS JOIN aaiclick.tests AS t WHERE t.outcome = 'blocked'"
        assert await query(joined, roles) == [(2,)]
    for roles in (frozenset(), frozenset({"finance"})):
        assert await query(tests, roles) == await query(freshness, roles) == []


async def test_number_of_rows_is_compared_with_the_last_runs(shop):
    await shop.deploy(make_dag("rows: {change: {from: -50%, to: 100%, against: last_2_runs}}"))
    for count in (40, 10):  # without a run to compare with, and then -75 %
        _, status = await update(shop, *(row(number, 1) for number in range(count)))
    assert status == "FAILED"
    assert "10 rows, -75 % against the last run (40)" in (await shop.errors())[0]
    _, status = await update(shop, *(row(number, 1) for number in range(30)))
    assert status == "COMPLETED"  # the blocked run does not count


async def test_added_test_applies_to_the_next_update_without_a_rebuild(shop):
    await shop.deploy(make_dag("not_null: [customer]"))
    await shop.run(row(1, -5), job="fetch")
    deployed = await shop.deploy(make_dag("between: {column: euros, low: 0, on_failure: quarantine}"))
    assert (deployed.built, deployed.job_id) == ((), None)
    assert await shop.rows("shop.orders") == [(1, -5, "ann")]
    await shop.run(row(1, -5), row(2, 5), job="fetch")
    assert await shop.rows("shop.orders") == [(2, 5, "ann")]


async def test_other_definitions_read_rejected_rows(shop):
    counted = """  - name: count
    activation: reactive
    operator: sql
    outputs: [mistakes]
    config: {query: "SELECT count() AS mistakes FROM orders__rejected"}
"""
    await shop.deploy(make_dag("not_null: customer\n            on_failure: quarantine") + counted)
    await shop.run(row(1, 5, None), row(2, 7), job="fetch")
    assert await shop.rows("shop.mistakes") == [(1,)]
