"""Table references of attempts, results, arguments and names; released with their owners."""

import pytest

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.store.engine import user_actions
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.leases_and_outcomes import Failure, Success
from aaiclick.store.engine.maintenance import delete_old_history, reap_expired_leases
from aaiclick.store.tables import table_references
from aaiclick.store.tenancy.orgs import create_org
from tests.integration.lifecycle.conftest import new_table


@pytest.fixture(autouse=True)
async def _sums(servers):
    yield
    assert [violation for violation in await check_invariants(servers.db) if violation.invariant == "I7"] == []


async def create_table(servers, lease, table=None) -> str:
    table = table or new_table()
    (held,) = await table_references.reserve_tables(servers.db, [(table, lease)])
    assert not held.lease_lost
    return table


async def test_reference_is_written_before_the_table_exists(servers):
    table = await create_table(servers, await servers.attempt())
    assert await servers.counts() == {table: 1}
    assert await servers.tables() == set()


async def test_attempt_without_a_lease_gets_no_table(servers):
    lease = await servers.attempt()
    await servers.acknowledge(releases=[lease])
    (held,) = await table_references.reserve_tables(servers.db, [(new_table(), lease)])
    assert held.lease_lost
    assert await servers.counts() == {}


async def test_name_registered_by_another_organisation_is_not_reserved(servers):
    table = await create_table(servers, await servers.attempt())
    org = await create_org(servers.db, name="Other", slug="other")
    await servers.submit("theirs", org_id=org.id)
    (foreign_claim,) = await servers.claim()
    (held,) = await table_references.reserve_tables(servers.db, [(table, foreign_claim.lease)])
    assert held.is_unknown
    assert not held.lease_lost
    assert await servers.counts() == {table: 1}
    owners = await servers.db.fetch("SELECT owner_id FROM table_references WHERE table_name = $1", table)
    assert foreign_claim.lease.task_id not in {row["owner_id"] for row in owners}


async def test_completion_keeps_results_and_releases_the_rest(servers):
    lease = await servers.attempt()
    result, scratch = await create_table(servers, lease), await create_table(servers, lease)
    assert await servers.acknowledge(successes=[Success(lease, "{}", tables=(result,))]) == {lease.task_id}
    assert await servers.counts() == {result: 1, scratch: 0}
    assert await servers.owners(result) == {"RESULT"}


async def test_late_completion_is_refused_and_its_tables_are_unused(servers):
    late = await servers.attempt()
    late_table = await create_table(servers, late)
    await servers.acknowledge(releases=[late])
    (now,) = await servers.claim()
    current_table = await create_table(servers, now.lease)
    assert await servers.acknowledge(successes=[Success(late, "{}", tables=(late_table,))]) == set()
    assert await servers.counts() == {late_table: 0, current_table: 1}


@pytest.mark.parametrize("ending", ["failed", "released", "reaped", "cleared", "cancelled"])
async def test_every_end_of_an_attempt_releases_its_tables(servers, ending):
    lease = await servers.attempt()
    table = await create_table(servers, lease)
    if ending == "failed":
        await servers.acknowledge(failures=[Failure(lease, "no", "no")])
    elif ending == "released":
        await servers.acknowledge(releases=[lease])
    elif ending == "reaped":
        await servers.db.execute("UPDATE tasks SET lease_expires_at = now() - interval '1 second'")
        await reap_expired_leases(servers.db, delay_seconds=lambda *_: 0)
    elif ending == "cleared":
        await user_actions.clear_tasks(servers.db, lease.task_id)
    else:
        await user_actions.cancel_tasks(servers.db, [lease.task_id])
        await servers.acknowledge(failures=[Failure(lease, "cancelled", "cancelled", permanent=True)])
    assert await servers.counts() == {table: 0}


async def test_table_being_dropped_cannot_be_held(servers):
    lease = await servers.attempt()
    table = await create_table(servers, lease)
    await table_references.release_tables(servers.db, [(table, lease)])
    assert list(await table_references.mark_tables_dropping(servers.db)) == [table]
    (dropping, unknown) = await table_references.hold_tables(servers.db, [(table, lease), ("t1", lease)])
    assert dropping.is_unknown
    assert unknown.is_unknown


async def test_held_table_is_not_dropped(servers):
    lease = await servers.attempt()
    table = await create_table(servers, lease)
    (other,) = [claim.lease for claim in [*await _another(servers)]]
    (held,) = await table_references.hold_tables(servers.db, [(table, other)])
    assert not held.is_unknown
    await servers.acknowledge(releases=[lease])
    assert await servers.counts() == {table: 1}
    assert not await table_references.mark_tables_dropping(servers.db)


async def _another(servers):
    await servers.submit("another")
    return await servers.claim()


async def test_arguments_are_held_by_the_job(servers):
    lease = await servers.attempt()
    table = await create_table(servers, lease)
    job, _ = await servers.submit("a", "b", tables=[(1, table), (2, table)])
    assert await servers.counts() == {table: 2}
    assert await servers.owners(table) == {"ATTEMPT", "JOB"}
    await servers.acknowledge(releases=[lease])
    await user_actions.cancel_job(servers.db, job)
    await table_references.release_ended_jobs(servers.db)
    assert await servers.counts() == {table: 0}


async def test_submit_with_a_missing_table_inserts_nothing(servers):
    with pytest.raises(SubmitError, match=r"has an Object of table t7 as argument, which is released or unknown"):
        await servers.submit("a", tables=[(1, "t7")])
    assert await servers.db.fetchval("SELECT count(*) FROM jobs") == 0
    assert await servers.counts() == {}


async def chain(servers) -> tuple[int, str, str]:
    """Complete a job of two dependent tasks, each with a table as its result."""
    job, _ = await servers.submit("first", "second", edges=((0, 1),))
    results = []
    for _ in range(2):
        (claim,) = await servers.claim()
        results.append(await create_table(servers, claim.lease))
        await servers.acknowledge(successes=[Success(claim.lease, "{}", tables=(results[-1],))])
    return job, *results


async def test_a_completed_job_keeps_its_final_results_only(servers):
    job, between, final = await chain(servers)
    assert await servers.counts() == {between: 1, final: 1}
    assert await table_references.release_ended_jobs(servers.db) == 1
    assert await servers.counts() == {between: 0, final: 1}
    assert await table_references.release_ended_jobs(servers.db) == 0
    assert await table_references.release_jobs(servers.db, [job]) == 1
    assert await servers.counts() == {between: 0, final: 0}


async def test_running_job_keeps_all_results(servers):
    job, _ = await servers.submit("first", "second", edges=((0, 1),))
    (claim,) = await servers.claim()
    table = await create_table(servers, claim.lease)
    await servers.acknowledge(successes=[Success(claim.lease, "{}", tables=(table,))])
    assert await table_references.release_ended_jobs(servers.db) == 0
    assert await servers.counts() == {table: 1}
    with pytest.raises(NotFoundError, match=r"no ended job \d+"):
        await table_references.release_jobs(servers.db, [job])


async def test_a_failed_job_can_be_retried_for_a_day(servers):
    await servers.submit("first", "second", edges=((0, 1),))
    (claim,) = await servers.claim()
    table = await create_table(servers, claim.lease)
    await servers.acknowledge(successes=[Success(claim.lease, "{}", tables=(table,))])
    (claim,) = await servers.claim()
    await servers.acknowledge(failures=[Failure(claim.lease, "no", "no", permanent=True)])
    assert await table_references.release_ended_jobs(servers.db) == 0
    tomorrow = await servers.db.fetchval("SELECT now() + interval '25 hours'")
    assert await table_references.release_ended_jobs(servers.db, now=tomorrow) == 1
    assert await servers.counts() == {table: 0}


async def test_deleted_job_releases_all_tables(servers):
    _, between, final = await chain(servers)
    later = await servers.db.fetchval("SELECT now() + interval '1 hour'")
    assert (await delete_old_history(servers.db, keep_seconds=1, now=later))["jobs"] == 1
    assert await servers.counts() == {between: 0, final: 0}


async def test_cleared_task_releases_its_result(servers):
    _, between, final = await chain(servers)
    (first,) = await servers.db.fetch("SELECT id FROM tasks WHERE type = 'first'")
    await user_actions.clear_tasks(servers.db, first["id"])
    assert await servers.counts() == {between: 0, final: 0}


async def test_completion_without_tables_reads_no_references(servers):
    queries = []
    for tables in (None, ()):
        lease = await servers.attempt()
        with servers.db.query_logger(lambda record: queries.append(record.query)):
            assert await servers.acknowledge(successes=[Success(lease, tables=tables)]) == {lease.task_id}
        assert any("table_references" in query for query in queries) is (tables is not None)
