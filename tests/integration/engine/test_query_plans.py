"""Statements use indexes: with 100,000 rows in each state (300,000 with CASES=all), and with any statistics.

Plans are judged by what they read, not by time: no sequential scan of a growing table, and few buffers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.statements import statement
from aaiclick.store.task_options import TaskOptions
from aaiclick.testing import TEMPLATE
from tests.cases import ALL_CASES

ROWS = 300_000 if ALL_CASES else 100_000
BATCH = 100
MANY = 3_000
TOKEN = uuid4()
LARGE = {
    "tasks",
    "dependencies",
    "groups",
    "jobs",
    "task_attempts",
    "waits",
    "workflow_events",
    "schedules",
    "incidents",
    "incident_occurrences",
    "notifications",
    "approvals",
    "rate_limits",
    "result_cache",
    "approval_links",
    "job_functions",
}

COLUMNS = """
    INSERT INTO tasks (id, type, status, readiness, attempt, completed_at, unmet, available_at, worker_id, lease_token,
                       lease_expires_at, claimed_at, job_id, has_dependents)
"""
# Ids by state: as many finished, blocked and future ones, 10k ready, 1k live.
FILL = f"""
    ALTER TABLE tasks SET (autovacuum_enabled = false);
    ALTER TABLE jobs SET (autovacuum_enabled = false);
    ALTER TABLE dependencies SET (autovacuum_enabled = false);
    ALTER TABLE task_attempts SET (autovacuum_enabled = false);
    SET synchronous_commit = off; SET session_replication_role = replica;
    INSERT INTO jobs (id, org_id, name, total_tasks, open_tasks, status, started_at)
        SELECT n, '00000000-0000-4000-8000-000000000001', 'j', 100, 100, 'RUNNING', now()
        FROM generate_series(1, 10000) AS n;
    {COLUMNS} SELECT n, 'x', 'COMPLETED', NULL, 1, now(), 0, NULL, 1, NULL, NULL, NULL, n % 10000 + 1, false
        FROM generate_series(1, {ROWS}) AS n;
    {COLUMNS} SELECT n, 'x', 'PENDING', 'BLOCKED', 0, NULL, 1, NULL, NULL, NULL, NULL, NULL, n % 10000 + 1, false
        FROM generate_series({ROWS} + 1, 2 * {ROWS}) AS n;
    {COLUMNS} SELECT n, 'x', 'PENDING', 'TIME', 0, NULL, 0, now() + interval '1 d', NULL, NULL, NULL, NULL, NULL, false
        FROM generate_series(2 * {ROWS} + 1, 3 * {ROWS}) AS n;
    {COLUMNS} SELECT n, 'x', 'PENDING', 'READY', 0, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, false
        FROM generate_series(3 * {ROWS} + 1, 3 * {ROWS} + 10000) AS n;
    {COLUMNS} SELECT n, 'x', 'CLAIMED', NULL, 1, NULL, 0, NULL, 7, '{TOKEN}', now() + interval '1 h', now(),
                     n % 10000 + 1, true
        FROM generate_series(4 * {ROWS} + 1, 4 * {ROWS} + 1000) AS n;
    INSERT INTO tasks (id, type, readiness, rate, rate_key)
        SELECT n, 'x', 'HELD', '1000/60', 'k' || n % 100 FROM generate_series(5 * {ROWS} + 1, 5 * {ROWS} + 100000) AS n;
    INSERT INTO rate_limits (org_id, key, allowed, seconds, charged_at, next_at, ends, counts)
        SELECT '00000000-0000-4000-8000-000000000001', 'k' || n, 10, 60, now(),
               CASE WHEN n < 100 THEN now() WHEN n < 50000 THEN now() + interval '1 h' END, '{{}}', '{{}}'
        FROM generate_series(1, 100000) AS n;
    INSERT INTO waits (task_id, org_id, attempt, wait_type, name, key)
        SELECT n, '00000000-0000-4000-8000-000000000001', 0, 'event', 'paid', n::text
        FROM generate_series(2 * {ROWS} + 1, 3 * {ROWS}) AS n;
    INSERT INTO workflow_events (id, org_id, name, key, expires_at)
        SELECT n, '00000000-0000-4000-8000-000000000001', 'paid', n::text, now() + interval '1 d'
        FROM generate_series(1, {ROWS}) AS n;
    INSERT INTO incidents (org_id, rule, fingerprint, severity, title, closed_at, closed_by, job_name)
        SELECT '00000000-0000-4000-8000-000000000001', 'job_failed', n::text, 'error', 't',
               CASE WHEN n % 100 > 0 THEN now() END, CASE WHEN n % 100 > 0 THEN 'recovery' END, 'j'
        FROM generate_series(1, 100000) AS n;
    UPDATE incidents SET opened_routed_at = now(), closed_routed_at = closed_at WHERE id % 100 <> 7;
    INSERT INTO notifications (org_id, incident_id, channel, event, task_id, sent_at, delivered_at)
        SELECT org_id, id, 'ops', 'opened', CASE WHEN id % 100 > 0 THEN id END, CASE WHEN id % 100 > 0 THEN now() END,
               CASE WHEN id % 100 > 0 THEN now() END FROM incidents;
    INSERT INTO incident_occurrences (org_id, rule, fingerprint, count)
        SELECT '00000000-0000-4000-8000-000000000001', 'job_failed', (n * 100)::text, 1
        FROM generate_series(1, 1000) AS n;
    INSERT INTO approvals (id, org_id, task_id, attempt, expires_at, title, role, decided_at, decision, decided_by)
        SELECT n, '00000000-0000-4000-8000-000000000001', n, 0, now(), 'Pay?', 'writer', d.at, d.decision, d.decision
        FROM generate_series(2 * {ROWS} + 1, 3 * {ROWS}) AS n,
            LATERAL (SELECT CASE WHEN n % 100 > 0 THEN now() END AS at, CASE WHEN n % 100 > 0 THEN 'approved' END
                     AS decision) AS d;
    INSERT INTO approval_links (token_hash, org_id, approval_id, recipient, expires_at)
        SELECT sha256(n::text::bytea), '00000000-0000-4000-8000-000000000001', n, 'ada', now()
        FROM generate_series(2 * {ROWS} + 1, 2 * {ROWS} + 100000) AS n;
    INSERT INTO result_cache (org_id, key, task_id)
        SELECT '00000000-0000-4000-8000-000000000001', 'k' || n, n FROM generate_series(1, 100000) AS n;
    INSERT INTO job_functions (org_id, entrypoint, module, name, documentation)
        SELECT '00000000-0000-4000-8000-000000000001', 'm' || n || '.f', 'm' || n, 'f', ''
        FROM generate_series(1, 100000) AS n;
    INSERT INTO dependencies (previous_id, next_id, previous_type, next_type)
        SELECT 4 * {ROWS} + 1 + n % 1000, n, 'task', 'task' FROM generate_series({ROWS} + 1, 2 * {ROWS}) AS n;
    INSERT INTO schedules (id, org_id, name, entrypoint, job_name, cron, timezone, missed, max_missed, overlap,
                           declared_in, next_run_at, due_at, last_run_id)
        SELECT n, '00000000-0000-4000-8000-000000000001', 'n' || n, 'm.f', 'f', '* * * * *', 'UTC', 'all', 9, 'queue',
               'm' || n, due, due, n % 10000 + 1
        FROM generate_series(1, 100000) AS n, LATERAL (SELECT now() + (n - 200) * interval '1 s' AS due) AS d;
    INSERT INTO task_attempts (task_id, attempt, charged, outcome, started_at)
        SELECT n, 1, false, 'RELEASED', now() FROM generate_series(1, {ROWS}) AS n;
"""
# Statistics of tables and indexes that were never analysed.
BELIEFS = """
    CREATE TABLE beliefs AS
        SELECT relname, relpages, reltuples, relallvisible FROM pg_class WHERE relnamespace = 'public'::regnamespace
"""
RESTORED = """
    UPDATE pg_class AS c SET relpages = b.relpages, reltuples = b.reltuples, relallvisible = b.relallvisible
    FROM beliefs AS b WHERE c.relname = b.relname AND c.relnamespace = 'public'::regnamespace
"""
INDEXES = """
    SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition FROM pg_index
    WHERE indrelid IN ('tasks'::regclass, 'dependencies'::regclass)
      AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
"""
KEY = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'dependencies_pkey'"


STATISTICS = {
    "none": RESTORED,
    "vacuum": "VACUUM tasks, jobs, groups, dependencies, task_additions, task_attempts",
    "analyze": "ANALYZE",
}
"""Statistics that autovacuum may have written when a statement runs, in this order."""


@pytest.fixture(scope="module", params=STATISTICS if ALL_CASES else ["none", "analyze"])
def large(filled: PostgresEndpoint, request: pytest.FixtureRequest) -> PostgresEndpoint:
    async def prepare() -> None:
        connection = await connect(filled)
        await connection.execute(STATISTICS[request.param], timeout=300)
        await connection.close()

    asyncio.run(prepare())
    return filled


@pytest.fixture(scope="module")
def filled(aaiclick_stack: Any, _aaiclick_template: None) -> Iterator[PostgresEndpoint]:
    name = aaiclick_stack.run(aaiclick_stack.take_database())
    endpoint = aaiclick_stack.connection.postgres_endpoint().with_database(name)

    async def fill() -> None:
        """Create indexes after loading, which is faster and otherwise equivalent."""
        connection = await connect(endpoint)
        await connection.execute(BELIEFS)
        indexes = await connection.fetch(INDEXES)
        for index in indexes:
            await connection.execute(f"DROP INDEX {index['name']}")
        key = await connection.fetchval(KEY)
        await connection.execute("ALTER TABLE dependencies DROP CONSTRAINT dependencies_pkey")
        await connection.execute(FILL, timeout=300)
        await connection.execute(f"ALTER TABLE dependencies ADD CONSTRAINT dependencies_pkey {key}", timeout=300)
        for index in indexes:
            await connection.execute(index["definition"], timeout=300)
        await connection.close()

    asyncio.run(fill())
    yield endpoint
    aaiclick_stack.run(aaiclick_stack.return_database(name))


def live(count: int = BATCH) -> list[int]:
    return [4 * ROWS + n for n in range(1, count + 1)]


def lease(count: int = BATCH) -> list[list[Any]]:
    return [live(count), [1] * count, [TOKEN] * count]


NOTHING: list[Any] = [None] * BATCH
CASES: dict[str, list[Any]] = {
    "claim_tasks": [1, BATCH, ["default"], 60.0, uuid4(), None, False],
    "claim_tasks_fair": [1, BATCH, [], 60.0, uuid4(), None, None, False],
    "claim_tasks_fair of an org": [1, BATCH, [], 60.0, uuid4(), None, DEFAULT_ORG_ID, False],
    "list_tasks_of_org": [uuid4(), 2**63 - 1, None, None, None, BATCH],
    "list_tasks_of_default_org": [DEFAULT_ORG_ID, 2**63 - 1, None, None, None, BATCH],
    "load_queue_scale": [DEFAULT_ORG_ID, "default", BATCH],
    "complete_tasks": [*lease(), NOTHING, NOTHING, NOTHING, None],
    "finish_tasks": [*lease(), NOTHING, NOTHING, NOTHING, None],
    "list_failed_tests": [DEFAULT_ORG_ID, 2**63 - 1, None, BATCH],
    "list_subject_tests": [DEFAULT_ORG_ID, 2**63 - 1, None, BATCH, "shop.orders", False],
    "list_task_tests": [DEFAULT_ORG_ID, 2**63 - 1, None, BATCH, 1],
    "load_literals": [["t1", "t2"], DEFAULT_ORG_ID],
    "find_literal": ["t1", DEFAULT_ORG_ID],
    "renew_leases": [*lease(), 60.0, None],
    "start_tasks": [*lease(), None],
    "release_tasks": [*lease(), None, 3, 300.0],
    "find_exhausted_releases": [live(), 20, 86_400.0, None],
    "lock_jobs": [live(), False],
    "promote_due_tasks": [BATCH, None],
    "seconds_to_next_due": [],
    "find_cached_result": [DEFAULT_ORG_ID, "k", live()[0], 1, TOKEN, None, []],
    "lock_waiting_update": [DEFAULT_ORG_ID, "definition:none", uuid4()],
    "lock_due_rates": [BATCH, None],
    "admit_rated_tasks": [[DEFAULT_ORG_ID] * 2, ["k1", "k2"], None],
    "has_due_tasks": [None],
    "list_expired_leases": [BATCH, None],
    "list_worker_leases": [7],
    "advance_groups": [live(1), [], [], [], None, []],
    "advance_tasks": [live(1), [], None, []],
    "complete_linked_tasks": [*lease(1), [], [], [], None],
    "list_branches": [live(1)[0]],
    "skip_tasks": [live(), [], None],
    "list_skip_effects": [live(1)],
    "advance_handlers": [live(1), [], None],
    "start_handlers": [list(range(ROWS + 1, ROWS + 1 + BATCH)), None],
    "add_handler_predecessors": [live(1)[0], live()],
    "list_handlers_of_tasks": [live()],
    "lock_waiting_lease": [live()[0], 1, TOKEN, None],
    "suspend_task": [live()[0], 1, TOKEN, None, 60.0, 60.0, None],
    "wake_event_waits": [DEFAULT_ORG_ID, "paid", "7", "{}", None],
    "find_workflow_event": [DEFAULT_ORG_ID, "paid", "7", None],
    "list_approvals": [DEFAULT_ORG_ID, 2**63 - 1, BATCH],
    "list_waiting_approvals": [DEFAULT_ORG_ID, 2**63 - 1, BATCH],
    "get_approval": [2 * ROWS + 1],
    "lock_approval": [2 * ROWS + 1],
    "count_workflow_events": [DEFAULT_ORG_ID, BATCH],
    "list_unfinished_children": [[7], [7]],
    "release_child_keys": [[7], False],
    "count_ancestors": [7, 50],
    "list_job_tree": [7, 200, 20],
    "list_undone_steps": [7, "m.f", [1]],
    "await_job": [1, DEFAULT_ORG_ID],
    "get_job_outcome": [1],
    "settle_turns": [DEFAULT_ORG_ID, "j"],
    "discard_turns": [7, True],
    "find_awaited_turn": [1],
    "debounce_task": [7 * ROWS, DEFAULT_ORG_ID, "x", None, "{}", "debounce:k", False, 300.0,
                      *TaskOptions(run_at=datetime.now(UTC)).values()],
    "release_debounce_key": [DEFAULT_ORG_ID, "x", "debounce:k"],
    "find_approval_link": [b"token"],
    "use_approval_link": [b"token"],
    "get_job_function": [DEFAULT_ORG_ID, "m7.f"],
    "delete_expired_events": [BATCH, None],
    "discard_additions": [live(), [1] * BATCH],
    "mark_has_dependents": [live(), 1],
    "lock_due_schedules": [None, BATCH],
    "list_limited_jobs": [DEFAULT_ORG_ID, "j"],
    "list_tagged_jobs": [DEFAULT_ORG_ID, None, 2**63 - 1, BATCH, '{"team": "none"}'],
    "list_code_versions": [1, BATCH],
    "list_job_functions": [DEFAULT_ORG_ID, "", BATCH],
    "list_named_jobs": [DEFAULT_ORG_ID, "j", BATCH],
    "list_unfinished_runs": [1, BATCH],
    "get_schedule": [DEFAULT_ORG_ID, "n77"],
    "lock_schedule": [DEFAULT_ORG_ID, "n77"],
    "list_schedules": [DEFAULT_ORG_ID, "", None, BATCH],
    "list_schedule_runs": [1, BATCH],
    "find_scheduled_jobs": [DEFAULT_ORG_ID, "j", ["k"] * BATCH],
    "find_scheduled_items": [DEFAULT_ORG_ID, "x", ["k"] * BATCH],
    "advance_schedule": [77, None, None, None, None, 0],
    "delete_addition_gates": [live(1)[0], 1],
    "update_job_counters": [[1, 2], [1, 1], [0, 0], [0, 0], None, [None, None], [0, 0]],
    "list_failed_tasks": [live(), 3],
    "record_incidents": [[DEFAULT_ORG_ID] * BATCH, ["job_failed"] * BATCH, [str(n) for n in range(BATCH)],
             ["error"] * BATCH, ["t"] * BATCH, *[NOTHING] * 7, [1] * BATCH, None],
    "add_occurrences": [BATCH, 4_000],
    "close_recovered_incidents": [0, BATCH, 0.0, None],
    "close_incident_of_key": [DEFAULT_ORG_ID, "job_failed", "100", None],
    "list_incidents": [DEFAULT_ORG_ID, 2**63 - 1, BATCH, None, None, True],
    "has_incident_work": [None],
    "take_late_datasets": [BATCH, None],
    "list_freshness": [DEFAULT_ORG_ID, None, None, None, BATCH, None, None],
    "list_upstream_runs": [DEFAULT_ORG_ID, [uuid4()] * BATCH, 10],
    "list_dataset_names": [DEFAULT_ORG_ID, None, [uuid4()] * BATCH],
    "get_forecast_end": [DEFAULT_ORG_ID, 60.0],
    "count_late_datasets": [],
    "take_overdue_jobs": [BATCH, None],
    "has_notification_work": [None],
    "lock_unrouted_incidents": [BATCH, None],
    "lock_escalating_incidents": [BATCH, None],
    "lock_woken_incidents": [BATCH, None],
    "mark_incidents_routed": [list(range(1, BATCH)), [False] * (BATCH - 1), [None] * (BATCH - 1)],
    "list_channels_of_incidents": [list(range(1, BATCH))],
    "lock_due_notifications": [BATCH, 0.0, None],
    "mark_notifications_delivered": [BATCH],
    "has_undelivered_notifications": [],
    "load_notifications": [list(range(1, BATCH)), 1],
    "list_notifications": [DEFAULT_ORG_ID, 2**63 - 1, BATCH, None],
    "close_channel_incidents": [None],
    "delete_old_incidents": [0.0, BATCH, None],
    "fail_tasks": [*lease(), ["e"] * BATCH, ["f"] * BATCH, [False] * BATCH, [0.0] * BATCH, [True] * BATCH, NOTHING,
             [False] * BATCH, ["FAILED"] * BATCH, None, 20, 86_400.0, 300.0],
}  # fmt: skip


TOLD = dict.fromkeys(("advance_tasks", "complete_linked_tasks", "list_skip_effects"), ROWS // 1000)
"""Number of rows that a statement needs if it is not a batch: the dependents of one task."""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def explain(connection: asyncpg.Connection, name: str, mode: str) -> dict[str, Any]:
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        query = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement(name.split()[0])}"
        text = await connection.fetchval(query, *CASES[name])
    finally:
        await transaction.rollback()
    return json.loads(text)[0]["Plan"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_statement_reads_only_needed_rows(aaiclick_stack: Any, large: PostgresEndpoint, name: str, mode: str) -> None:
    plan = aaiclick_stack.run(
        aaiclick_stack.use_connection(large.database, lambda connection: explain(connection, name, mode))
    )
    scanned = {n["Relation Name"] for n in nodes(plan) if n["Node Type"] == "Seq Scan"}
    assert not scanned & LARGE
    touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert touched < MANY + 60 * TOLD.get(name, BATCH), f"{name} touched {touched} buffers"


SMALL = {
    "tasks_ready", "tasks_live", "jobs_paused", "incidents_unrouted", "incidents_unclosed", "incidents_failing_channel",
    "incident_occurrences_pkey", "notifications_undelivered",
}  # fmt: skip
"""Partial indexes with few rows: a full scan is allowed."""

HOSTILE = {
    "never analysed": "SELECT",
    "analysed while empty": "ANALYZE",
    "no nested loops": "SET enable_nestloop = off",
}


@pytest.fixture
def unused_database(aaiclick_stack: Any, _aaiclick_template: None) -> Iterator[PostgresEndpoint]:
    """A new copy of the template: a database of earlier tests has their statistics."""
    name = f"plans_{uuid4().hex}"
    aaiclick_stack.run(aaiclick_stack.run_sql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}"))
    yield aaiclick_stack.connection.postgres_endpoint().with_database(name)
    aaiclick_stack.run(aaiclick_stack.run_sql(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.mark.parametrize("belief", HOSTILE)
async def test_any_statistics_avoid_sequential_scans(unused_database: PostgresEndpoint, belief: str) -> None:
    """A generic plan for empty tables stays in use while they grow: each of its scans needs a condition."""
    connection = await connect(unused_database)
    whole: list[str] = []
    try:
        await connection.execute(HOSTILE[belief])
        for name in CASES:
            for node in nodes(await explain(connection, name, "force_generic_plan")):
                bounded = "Index Cond" in node or "TID Cond" in node or node.get("Index Name") in SMALL
                if node.get("Relation Name") in LARGE and "Scan" in node["Node Type"] and not bounded:
                    whole.append(f"{name}: {node['Node Type']} of {node['Relation Name']}")
    finally:
        await connection.close()
    assert sorted(set(whole)) == []


async def test_cached_plan_of_empty_table_stays_efficient(unused_database: PostgresEndpoint) -> None:
    """A worker that polls an empty queue caches its plans before the first million tasks arrive."""
    connection = await connect(unused_database)
    try:
        claim = await connection.prepare(statement("claim_tasks"))
        for _ in range(10):
            await claim.fetch(1, BATCH, ["default"], 60.0, uuid4(), None, False)
        await connection.execute(
            "INSERT INTO tasks (id, type) SELECT n, 'x' FROM generate_series(1, 50000) AS n", timeout=60
        )
        await claim.fetch(1, BATCH, ["default"], 60.0, uuid4(), None, False)
        async with connection.transaction():
            before = await connection.fetchval("SELECT pg_stat_get_xact_tuples_returned('tasks'::regclass)")
            assert len(await claim.fetch(1, BATCH, ["default"], 60.0, uuid4(), None, False)) == BATCH
            after = await connection.fetchval("SELECT pg_stat_get_xact_tuples_returned('tasks'::regclass)")
    finally:
        await connection.close()
    assert after - before == 0  # rows read by sequential scans
