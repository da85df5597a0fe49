"""Literals: results stored with their tasks, and their conversion to tables when something needs one."""

import asyncio
import json

import pytest

from aaiclick.store.engine import queries, user_actions
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.leases_and_outcomes import Success
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tables import literal_results
from aaiclick.store.tables.literal_results import Reservation
from tests.integration.lifecycle.conftest import new_table

OTHER_ORG = "00000000-0000-4000-8000-0000000000ff"


@pytest.fixture(autouse=True)
async def _sums(servers):
    yield
    assert [violation for violation in await check_invariants(servers.db) if violation.invariant == "I7"] == []


async def complete_with_literal(servers, table=None, text='{"value": 1}') -> tuple[int, str]:
    """Complete a task with a literal; returns the task and its table id."""
    lease, table = await servers.attempt(), table or new_table()
    result = json.dumps({"object_type": "object", "table_id": table})
    assert await servers.acknowledge(successes=[Success(lease, result, literal=text)]) == {lease.task_id}
    return lease.task_id, table


async def test_a_literal_is_found_by_table_and_by_task(servers):
    task_id, table = await complete_with_literal(servers)
    assert await literal_results.load_literals(servers.db, [table, "t1"], DEFAULT_ORG_ID) == {table: '{"value": 1}'}
    job_id = await servers.db.fetchval("SELECT job_id FROM tasks WHERE id = $1", task_id)
    results = await queries.load_task_results(servers.db, job_id, [task_id])
    assert results[task_id].literal == '{"value": 1}'
    assert await servers.counts() == {}


async def test_a_literal_of_another_organisation_does_not_exist(servers):
    _, table = await complete_with_literal(servers)
    assert await literal_results.load_literals(servers.db, [table], OTHER_ORG) == {}
    assert await literal_results.reserve_literal_table(servers.db, table, OTHER_ORG) is Reservation.NO_LITERAL
    await literal_results.replace_literal(servers.db, table, OTHER_ORG)
    assert table in await literal_results.load_literals(servers.db, [table], DEFAULT_ORG_ID)


async def test_one_caller_reserves_the_table_of_a_literal(servers):
    _, table = await complete_with_literal(servers)
    connections = [await connect(servers.postgres) for _ in range(4)]
    try:
        answers = await asyncio.gather(
            *(literal_results.reserve_literal_table(connection, table, DEFAULT_ORG_ID) for connection in connections)
        )
    finally:
        for connection in connections:
            await connection.close()
    assert sorted(answers) == [Reservation.GRANTED, Reservation.TAKEN, Reservation.TAKEN, Reservation.TAKEN]
    assert await servers.counts() == {table: 1}
    assert await servers.owners(table) == {"RESULT"}


async def test_readers_use_the_table_after_the_replacement(servers):
    _, table = await complete_with_literal(servers)
    assert await literal_results.reserve_literal_table(servers.db, table, DEFAULT_ORG_ID) is Reservation.GRANTED
    assert table in await literal_results.load_literals(servers.db, [table], DEFAULT_ORG_ID)
    await literal_results.replace_literal(servers.db, table, DEFAULT_ORG_ID)
    assert await literal_results.load_literals(servers.db, [table], DEFAULT_ORG_ID) == {}
    assert await literal_results.reserve_literal_table(servers.db, table, DEFAULT_ORG_ID) is Reservation.NO_LITERAL
    assert await servers.counts() == {table: 1}


@pytest.mark.parametrize("ending", ["abandoned", "dead"])
async def test_a_reservation_without_an_end_is_taken_over(servers, ending):
    _, table = await complete_with_literal(servers)
    await literal_results.reserve_literal_table(servers.db, table, DEFAULT_ORG_ID)
    if ending == "abandoned":
        await literal_results.abandon_literal_table(servers.db, table, DEFAULT_ORG_ID)
    else:
        await servers.db.execute("UPDATE table_refcounts SET updated_at = now() - interval '2 minutes'")
    assert await literal_results.reserve_literal_table(servers.db, table, DEFAULT_ORG_ID) is Reservation.GRANTED
    assert await servers.counts() == {table: 1}


async def test_clearing_a_task_deletes_its_literal(servers):
    task_id, table = await complete_with_literal(servers)
    await user_actions.clear_tasks(servers.db, task_id)
    assert await literal_results.load_literals(servers.db, [table], DEFAULT_ORG_ID) == {}


async def test_a_result_may_refer_to_the_literal_of_another_task(servers):
    _, table = await complete_with_literal(servers)
    lease = await servers.attempt()
    result = json.dumps([{"object_type": "object", "table_id": table}])
    assert await servers.acknowledge(successes=[Success(lease, result, tables=(table,))]) == {lease.task_id}
    status = await servers.db.fetchval("SELECT status::text FROM tasks WHERE id = $1", lease.task_id)
    assert status == "COMPLETED"
