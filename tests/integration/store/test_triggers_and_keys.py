"""Unique keys, triggers and cascades of the schema."""

from __future__ import annotations

import asyncpg
import pytest
from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.enums import DEFAULT_ORG_ID, JobStatus, TaskReadiness, TaskStatus
from aaiclick.store.models import Job, Org, Task
from aaiclick.store.postgres_connections import create_engine

ORG = f"'{DEFAULT_ORG_ID}'"
DATASET = "'22222222-2222-4222-8222-222222222222'"


async def add_dataset(db: asyncpg.Connection) -> None:
    await db.execute(f"""
        INSERT INTO datasets (id, org_id, name, producer_dag_name, producer_job_name, producer_output_index)
        VALUES ({DATASET}, {ORG}, 'dataset', 'd', 'j', 0)""")


async def test_default_org_exists(db: asyncpg.Connection) -> None:
    assert await db.fetchval("SELECT slug FROM orgs WHERE id = $1", DEFAULT_ORG_ID) == "default"


@pytest.mark.parametrize("bounds", ["NULL, NULL", "1, 5", "NULL, 5", "1, NULL", "5, 5"])
async def test_dataset_version_is_unique_per_range(db: asyncpg.Connection, bounds: str) -> None:
    await add_dataset(db)
    insert = f"""
        INSERT INTO dataset_versions (dataset_uuid, storage_location, config_hash, range_start, range_end)
        VALUES ({DATASET}, 'l', 'h', {bounds})"""
    await db.execute(insert)
    target = "(dataset_uuid, config_hash, numrange(range_start::numeric, range_end::numeric, '[]'))"
    assert await db.execute(f"{insert} ON CONFLICT {target} DO NOTHING") == "INSERT 0 0"
    with pytest.raises(asyncpg.UniqueViolationError):
        await db.execute(insert)


async def test_different_ranges_are_different_versions(db: asyncpg.Connection) -> None:
    await add_dataset(db)
    await db.execute(f"""
        INSERT INTO dataset_versions (dataset_uuid, storage_location, config_hash, range_start, range_end)
        VALUES ({DATASET}, 'l', 'h', NULL, NULL), ({DATASET}, 'l', 'h', 0, NULL), ({DATASET}, 'l', 'h', NULL, 0),
               ({DATASET}, 'l', 'h', 0, 0), ({DATASET}, 'l', 'h', 0, 1), ({DATASET}, 'l', 'h', 1, 1)""")


async def test_second_leader_is_refused(db: asyncpg.Connection) -> None:
    lead = (
        "UPDATE workers SET is_leader = true, leader_until = now(), leader_term = nextval('leader_terms') WHERE id = $1"
    )
    await db.execute("INSERT INTO workers (id, hostname, pid) VALUES (1, 'a', 1), (2, 'b', 2)")
    await db.execute(lead, 1)
    with pytest.raises(asyncpg.UniqueViolationError):
        async with db.transaction():
            await db.execute(lead, 2)
    await db.execute("UPDATE workers SET is_leader = false, leader_until = NULL WHERE id = 1")
    await db.execute(lead, 2)
    terms = [row[0] for row in await db.fetch("SELECT leader_term FROM workers ORDER BY id")]
    assert terms[1] > terms[0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [("error = 'x'", "changed"), ("error = 'x', updated_at = '2001-01-01'", "as it says")],
)
async def test_updated_at_is_set_by_a_trigger(db: asyncpg.Connection, change: str, expected: str) -> None:
    await db.execute(f"INSERT INTO jobs (id, org_id, name, updated_at) VALUES (1, {ORG}, 'x', '2000-01-01')")
    await db.execute(f"UPDATE jobs SET {change} WHERE id = 1")
    changed = await db.fetchval(
        "SELECT CASE updated_at WHEN now() THEN 'changed' WHEN '2001-01-01' THEN 'as it says' END FROM jobs"
    )
    assert changed == expected


async def test_one_task_per_idempotency_key_of_an_org_and_type(db: asyncpg.Connection) -> None:
    await db.execute(f"INSERT INTO orgs (id, name, slug) VALUES ({DATASET}, 'Other', 'other')")
    await db.execute(f"""
        INSERT INTO tasks (id, org_id, type, idempotency_key)
        VALUES (1, {ORG}, 'x', 'k'), (2, {ORG}, 'y', 'k'), (3, {DATASET}, 'x', 'k'), (4, {ORG}, 'x', NULL),
               (5, {ORG}, 'x', NULL)""")
    with pytest.raises(asyncpg.UniqueViolationError):
        await db.execute(f"INSERT INTO tasks (id, org_id, type, idempotency_key) VALUES (6, {ORG}, 'x', 'k')")


async def test_deleting_a_job_deletes_its_rows(db: asyncpg.Connection) -> None:
    await db.execute(f"""
        INSERT INTO jobs (id, org_id, name) VALUES (1, {ORG}, 'gone'), (2, {ORG}, 'kept');
        INSERT INTO groups (id, job_id, name, parent_group_id)
            VALUES (10, 1, 'g', NULL), (11, 1, 'h', 10), (12, 2, 'k', NULL);
        INSERT INTO tasks (id, job_id, group_id, type)
            VALUES (20, 1, 10, 'x'), (21, 1, 11, 'x'), (22, 2, 12, 'x'), (23, 2, 12, 'x');
        INSERT INTO dependencies (previous_id, previous_type, next_id, next_type)
            VALUES (20, 'task', 21, 'task'), (10, 'group', 21, 'task'), (21, 'task', 11, 'group'),
                   (22, 'task', 23, 'task');
        INSERT INTO task_attempts (task_id, attempt, charged, outcome)
            VALUES (20, 1, true, 'LOST'), (22, 1, true, 'LOST');
        INSERT INTO outbox (org_id, job_id, kind) VALUES ({ORG}, 1, 'route_event')""")
    await db.execute("DELETE FROM jobs WHERE id = 1")
    counts = {
        table: await db.fetchval(f"SELECT count(*) FROM {table}")
        for table in ("groups", "tasks", "dependencies", "task_attempts", "outbox")
    }
    assert counts == {"groups": 1, "tasks": 2, "dependencies": 1, "task_attempts": 1, "outbox": 0}


async def test_event_of_another_orgs_job_is_refused(db: asyncpg.Connection) -> None:
    await db.execute(f"""
        INSERT INTO orgs (id, name, slug) VALUES ({DATASET}, 'Other', 'other');
        INSERT INTO jobs (id, org_id, name) VALUES (1, {ORG}, 'a')""")
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await db.execute(f"INSERT INTO outbox (org_id, job_id, kind) VALUES ({DATASET}, 1, 'route_event')")


async def test_task_in_a_group_of_another_job_is_refused(db: asyncpg.Connection) -> None:
    await db.execute(f"""
        INSERT INTO jobs (id, org_id, name) VALUES (1, {ORG}, 'a'), (2, {ORG}, 'b');
        INSERT INTO groups (id, job_id, name) VALUES (10, 1, 'g')""")
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await db.execute("INSERT INTO tasks (id, job_id, group_id, type) VALUES (20, 2, 10, 'x')")


async def test_heartbeat_is_a_hot_update(migrated: PostgresEndpoint) -> None:
    connection = await asyncpg.connect(migrated.dsn)
    try:
        await connection.execute("""
            INSERT INTO tasks
                (id, type, status, readiness, attempt, worker_id, lease_token, lease_expires_at, claimed_at)
            VALUES (1, 'x', 'CLAIMED', NULL, 1, 7, gen_random_uuid(), now(), now())""")
        await connection.execute("UPDATE tasks SET lease_expires_at = now() + interval '1 min', last_heartbeat = now()")
        # Statistics of the own transaction are available at once; those of others are delayed.
        async with connection.transaction():
            await connection.execute(
                "UPDATE tasks SET lease_expires_at = now() + interval '1 min', last_heartbeat = now()"
            )
            assert await connection.fetchval("SELECT pg_stat_get_xact_tuples_hot_updated('tasks'::regclass)") >= 1
    finally:
        await connection.close()


async def test_models_read_and_write_through_the_engine(migrated: PostgresEndpoint) -> None:
    engine = create_engine(migrated)
    try:
        async with AsyncSession(engine) as session:
            session.add(Job(id=2**62, org_id=DEFAULT_ORG_ID, name="job", total_tasks=1, open_tasks=1))
            await session.flush()
            session.add(Task(id=1, job_id=2**62, type="a.b", entrypoint="a.b", kwargs={"n": [1, None]}))
            await session.commit()
        async with AsyncSession(engine) as session:
            job = (await session.exec(select(Job))).one()
            task = (await session.exec(select(Task))).one()
            org = (await session.exec(select(Org))).one()
    finally:
        await engine.dispose()
    assert (job.id, job.status, org.slug) == (2**62, JobStatus.PENDING, "default")
    assert (task.status, task.readiness, task.kwargs) == (TaskStatus.PENDING, TaskReadiness.READY, {"n": [1, None]})
    assert task.org_id == DEFAULT_ORG_ID
    assert task.created_at.tzinfo is not None
