"""Row-level security: what a session of the API role sees, even without filters in the statement."""

from __future__ import annotations

from uuid import UUID, uuid4

import asyncpg
import pytest

from aaiclick.errors import AaiclickError
from aaiclick.store.models import metadata
from aaiclick.store.models.row_level_security import POLICIES
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy.postgres_api_role import create_api_pool, ensure_api_role, set_tenant

OURS, THEIRS = uuid4(), uuid4()

SEED = """
INSERT INTO orgs (id, name, slug) VALUES ($o, 'x', 'org$n');
INSERT INTO queues (org_id, name) VALUES ($o, 'q');
INSERT INTO queue_minutes (org_id, queue, minute, completed, failed) VALUES ($o, 'q', now(), 1, 0);
INSERT INTO task_types (org_id, name) VALUES ($o, 't');
INSERT INTO users (id, org_id, external_id, role) VALUES ($u, $o, 'subject$n', 'reader');
INSERT INTO org_roles (id, org_id, slug, name) VALUES ($u, $o, 'r', 'R');
INSERT INTO org_role_memberships (role_id, user_id) VALUES ($u, $u);
INSERT INTO api_keys (org_id, name, prefix, key_hash, scopes) VALUES ($o, 'k', 'p$n', 'h', '{reader}');
INSERT INTO org_secrets (org_id, name, ciphertext, key_id) VALUES ($o, 's', 'c', 'k');
INSERT INTO audit_log (org_id, actor, action, target) VALUES ($o, 'a', 'b', 'c');
INSERT INTO idempotency_keys (org_id, route, key, body_hash, status, body) VALUES ($o, 'r', 'k', 'h', 200, '{}');
INSERT INTO dag_versions (id, org_id, dag_name, yaml_hash, yaml) VALUES ($u, $o, 'd', 'h', 'y');
INSERT INTO dag_current_versions (org_id, dag_name, dag_version_id) VALUES ($o, 'd', $u);
INSERT INTO job_definitions (id, org_id, name, dag_name, dag_version_id, activation, runtime, operator, source,
    config_hash, update_strategy, status)
    VALUES ($u, $o, 'n', 'd', $u, 'source', 'pool', 'sql', '{}', 'h', 'replace', 'Pending');
INSERT INTO datasets (id, org_id, name, producer_dag_name, producer_job_name, producer_output_index)
    VALUES ($u, $o, 's', 'd', 'j', 0);
INSERT INTO dataset_versions (id, dataset_uuid, storage_location, config_hash) VALUES ($u, $u, 'l', 'h');
INSERT INTO dataset_partitions (dataset_version, partition_key, ticket) VALUES ($u, 'p', 1);
INSERT INTO dag_version_datasets (dag_version_id, dataset_uuid, dataset_version) VALUES ($u, $u, $u);
INSERT INTO schedules (id, org_id, name, entrypoint, job_name, cron, timezone, missed, max_missed, overlap)
    VALUES ($n05, $o, 'n', 'm.f', 'f', '@daily', 'UTC', 'all', 1, 'allow');
INSERT INTO job_functions (org_id, entrypoint, module, name, documentation) VALUES ($o, 'm.f', 'm', 'f', '');
INSERT INTO jobs (id, org_id, name, total_tasks, open_tasks) VALUES ($n00, $o, 'j', 2, 2);
INSERT INTO groups (id, job_id, name) VALUES ($n01, $n00, 'g');
INSERT INTO tasks (id, org_id, job_id, type) VALUES ($n02, $o, $n00, 't'), ($n03, $o, $n00, 't');
INSERT INTO dependencies (previous_id, next_id, previous_type, next_type) VALUES ($n02, $n03, 'task', 'task'),
    ($n02, $n01, 'task', 'group');
INSERT INTO task_attempts (task_id, attempt, charged, outcome) VALUES ($n02, 1, true, 'FAILED');
INSERT INTO waits (task_id, org_id, attempt, wait_type) VALUES ($n02, $o, 1, 'time');
INSERT INTO workflow_events (id, org_id, expires_at, name) VALUES ($n06, $o, now(), 'e');
INSERT INTO approvals (id, org_id, task_id, attempt, expires_at, title, role)
    VALUES ($n07, $o, $n02, 0, now(), 't', 'r');
INSERT INTO approval_links (token_hash, org_id, approval_id, expires_at, recipient)
    VALUES ('$n07', $o, $n07, now(), 'r');
INSERT INTO workers (id, hostname, pid, org_id) VALUES ($n04, 'h', 1, $o);
INSERT INTO incidents (org_id, rule, fingerprint, severity, title) VALUES ($o, 'job_failed', 'f', 'error', 't');
INSERT INTO notification_channels (org_id, name, channel_type) VALUES ($o, 'c', 'slack');
INSERT INTO notification_rules (org_id, name) VALUES ($o, 'r');
INSERT INTO notifications (org_id, incident_id, channel, event)
    SELECT org_id, id, 'c', 'opened' FROM incidents WHERE org_id = $o;
INSERT INTO outbox (org_id, job_id, kind) VALUES ($o, $n00, 'route_event');
INSERT INTO dispatches (task_id, org_id, attempt) VALUES ($n02, $o, 0);
INSERT INTO task_inputs (task_id, input_dataset_uuid, input_partition_key, input_version) VALUES ($n02, $u, 'p', now());
INSERT INTO dataset_freshness (dataset_uuid, org_id, max_age_seconds, timezone, days, due_at)
    VALUES ($u, $o, 60, 'UTC', '*', now());
INSERT INTO result_cache (org_id, key, task_id) VALUES ($o, 'k', $n02);
INSERT INTO rate_limits (org_id, key, allowed, seconds, charged_at, ends, counts)
    VALUES ($o, 'k', 1, 1, now(), '{}', '{}');
INSERT INTO data_test_results (org_id, subject, task_id, attempt, number, test, on_failure, outcome, rows, failing_rows,
    message, published) VALUES ($o, 's', $n02, 1, 0, 't', 'warn', 'passed', 1, 0, '', true);
INSERT INTO column_lineage (output_dataset_uuid, output_version, output_column, input_dataset_uuid, input_column)
    VALUES ($u, $u, 'a', $u, 'b');
INSERT INTO operator_state (org_id, definition_id) VALUES ($o, $u);
INSERT INTO task_additions (task_id, attempt, first_id, tasks, groups) VALUES ($n02, 1, 1, '{}', '{}');
INSERT INTO table_refcounts (table_name) VALUES ('t$n');
INSERT INTO table_references (table_name, owner, owner_id, job_id) VALUES ('t$n', 'JOB', $n00, $n00);
INSERT INTO table_references (table_name, owner, owner_id) VALUES ('t$n', 'TASK', $n02)
"""
ROWS_PER_ORG = {table: 2 if table in ("tasks", "dependencies", "table_references") else 1 for table in POLICIES}


@pytest.fixture
async def owner(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    await ensure_api_role(connection)
    for number, org in ((1, OURS), (2, THEIRS)):
        script = SEED.replace("$o", f"'{org}'").replace("$u", f"'{UUID(int=org.int ^ 1)}'").replace("$n", str(number))
        await connection.execute(script)
    yield connection
    await connection.close()


@pytest.fixture
async def pool(aaiclick_postgres, owner):
    pool = create_api_pool(aaiclick_postgres, size=1, statement_seconds=5)
    await pool
    yield pool
    await pool.close()


async def rows_seen(connection) -> dict[str, int]:
    return {table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in POLICIES}


async def test_session_sees_only_its_org(pool) -> None:
    async with pool.acquire() as connection:
        await set_tenant(connection, OURS)
        assert await rows_seen(connection) == ROWS_PER_ORG
        assert [row["id"] for row in await connection.fetch("SELECT id FROM orgs")] == [OURS]
        assert [row["id"] for row in await connection.fetch("SELECT id FROM jobs")] == [100]


async def test_every_policy_is_needed(owner, pool) -> None:
    """Without its policy a table shows nothing, without row-level security all rows: tests detect both."""
    async with pool.acquire() as connection:
        await set_tenant(connection, OURS)
        for table, rows in POLICIES.items():
            await owner.execute(f"DROP POLICY org ON {table}")
            assert (await rows_seen(connection))[table] == 0
            await owner.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") > ROWS_PER_ORG[table]
            await owner.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
            await owner.execute(f"CREATE POLICY org ON {table} USING ({rows})")


async def test_session_without_a_tenant_sees_nothing(pool) -> None:
    async with pool.acquire() as connection:
        assert set((await rows_seen(connection)).values()) == {0}


async def test_tenant_is_reset_between_requests(pool) -> None:
    async with pool.acquire() as connection:
        await set_tenant(connection, OURS)
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT aaiclick_org_id()") is None
        assert await connection.fetchval("SELECT current_user") == "aaiclick_api"
        assert await connection.fetchval("SHOW enable_seqscan") == "off"


async def test_session_cannot_write_into_another_org(pool) -> None:
    async with pool.acquire() as connection:
        await set_tenant(connection, OURS)
        assert await connection.execute("UPDATE tasks SET priority = 9 WHERE id = 202") == "UPDATE 0"
        assert await connection.execute("DELETE FROM jobs WHERE id = 200") == "DELETE 0"
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute("INSERT INTO queues (org_id, name) VALUES ($1, 'mine')", THEIRS)
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute("UPDATE tasks SET org_id = $1 WHERE id = 102", THEIRS)


async def test_reference_can_be_dropped_without_reading_counters(owner, pool) -> None:
    async with pool.acquire() as connection:
        await set_tenant(connection, OURS)
        assert await connection.execute("DELETE FROM table_references") == "DELETE 2"
    counts = await owner.fetch("SELECT table_name, refcount FROM table_refcounts ORDER BY 1")
    assert [tuple(row) for row in counts] == [("t1", 0), ("t2", 2)]


async def test_shared_worker_is_visible_but_read_only(owner, pool) -> None:
    await owner.execute("INSERT INTO workers (id, hostname, pid) VALUES (900, 'h', 1)")
    async with pool.acquire() as connection:
        await set_tenant(connection, OURS)
        assert [row["id"] for row in await connection.fetch("SELECT id FROM workers ORDER BY id")] == [104, 900]
        assert await connection.execute("UPDATE workers SET pid = 2 WHERE id IN (104, 900, 204)") == "UPDATE 1"
        assert await connection.execute("DELETE FROM workers WHERE id IN (900, 204)") == "DELETE 0"
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute("INSERT INTO workers (id, hostname, pid) VALUES (901, 'h', 1)")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM table_refcounts",
        "SELECT * FROM table_sessions",
        "SELECT * FROM ui_sessions",
        "UPDATE audit_log SET actor = 'nobody'",
        "DELETE FROM audit_log",
        "ALTER TABLE tasks DISABLE ROW LEVEL SECURITY",
        "DROP POLICY org ON tasks",
        "CREATE TABLE escape (x int)",
    ],
)
async def test_api_role_has_no_other_privileges(pool, statement: str) -> None:
    async with pool.acquire() as connection:
        await set_tenant(connection, OURS)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)


async def test_every_table_has_row_level_security(owner) -> None:
    open_tables = await owner.fetch("""
        SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND NOT relrowsecurity""")
    assert [row["relname"] for row in open_tables] == ["aaiclick_version"]
    with_org = {table.name for table in metadata.sorted_tables if "org_id" in table.columns}
    assert with_org - {"table_refcounts", "orphan_files", "incident_occurrences"} <= set(POLICIES)  # no access at all
    closed = {
        "table_refcounts",
        "table_sessions",
        "orphan_files",
        "metric_counts",
        "ui_sessions",
        "incident_occurrences",
    }
    assert set(metadata.tables) - set(POLICIES) == closed


async def test_role_that_bypasses_row_level_security_is_refused(aaiclick_postgres, owner) -> None:
    """A server with a role that bypasses row-level security refuses to start."""
    pool = create_api_pool(aaiclick_postgres, size=1, statement_seconds=5)
    await pool
    await owner.execute("ALTER TABLE queues DISABLE ROW LEVEL SECURITY")
    with pytest.raises(AaiclickError, match="would not be separated"):
        await pool.acquire()
    await owner.execute("ALTER TABLE queues ENABLE ROW LEVEL SECURITY")
    await pool.close()


async def test_owner_bypasses_row_level_security(owner) -> None:
    """Sessions of the owner, which workers and loops use, see all orgs."""
    assert await owner.fetchval("SELECT count(*) FROM jobs") == 2
    plan = await owner.fetch("EXPLAIN SELECT * FROM tasks WHERE id = 1")
    assert "aaiclick_org_id" not in str(plan)
