"""Who refers to a table: attempts, results, arguments, names; each released exactly with its owner."""

import pytest

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.store import control, tables
from aaiclick.store.doctor import check_invariants
from aaiclick.store.leases import Failure, Success
from aaiclick.store.upkeep import forget, reap
from tests.integration.lifecycle.conftest import new_table


@pytest.fixture(autouse=True)
async def _sums(servers):
    yield
    assert [each for each in await check_invariants(servers.db) if each.invariant == "I7"] == []


async def made(servers, lease, table=None) -> str:
    table = table or new_table()
    (held,) = await tables.reserve(servers.db, [(table, lease)])
    assert not held.lease_lost
    return table


async def test_a_table_is_known_before_it_exists(servers):
    table = await made(servers, await servers.attempt())
    assert await servers.counts() == {table: 1}
    assert await servers.tables() == set()


async def test_an_attempt_that_has_lost_its_lease_gets_no_table(servers):
    lease = await servers.attempt()
    await servers.acknowledge(releases=[lease])
    (held,) = await tables.reserve(servers.db, [(new_table(), lease)])
    assert held.lease_lost
    assert await servers.counts() == {}


async def test_a_completion_hands_results_on_and_releases_the_rest(servers):
    lease = await servers.attempt()
    result, scratch = await made(servers, lease), await made(servers, lease)
    assert await servers.acknowledge(successes=[Success(lease, "{}", tables=(result,))]) == {lease.task_id}
    assert await servers.counts() == {result: 1, scratch: 0}
    assert await servers.owners(result) == {"RESULT"}


async def test_a_late_completion_is_refused_and_its_tables_are_unused(servers):
    late = await servers.attempt()
    theirs = await made(servers, late)
    await servers.acknowledge(releases=[late])
    (now,) = await servers.claim()
    ours = await made(servers, now.lease)
    assert await servers.acknowledge(successes=[Success(late, "{}", tables=(theirs,))]) == set()
    assert await servers.counts() == {theirs: 0, ours: 1}


@pytest.mark.parametrize("ending", ["failed", "released", "reaped", "cleared", "cancelled"])
async def test_whatever_ends_an_attempt_releases_its_tables(servers, ending):
    lease = await servers.attempt()
    table = await made(servers, lease)
    if ending == "failed":
        await servers.acknowledge(failures=[Failure(lease, "no", "no")])
    elif ending == "released":
        await servers.acknowledge(releases=[lease])
    elif ending == "reaped":
        await servers.db.execute("UPDATE tasks SET lease_expires_at = now() - interval '1 second'")
        await reap(servers.db, delay_seconds=lambda *_: 0)
    elif ending == "cleared":
        await control.clear(servers.db, lease.task_id)
    else:
        await control.cancel_tasks(servers.db, [lease.task_id])
        await servers.acknowledge(failures=[Failure(lease, "cancelled", "cancelled", permanent=True)])
    assert await servers.counts() == {table: 0}


async def test_what_is_being_dropped_cannot_be_held(servers):
    lease = await servers.attempt()
    table = await made(servers, lease)
    await tables.release(servers.db, [(table, lease)])
    assert list(await tables.mark_dropping(servers.db)) == [table]
    (dropping, unknown) = await tables.hold(servers.db, [(table, lease), ("t1", lease)])
    assert dropping.gone
    assert unknown.gone


async def test_what_is_held_is_not_dropped(servers):
    lease = await servers.attempt()
    table = await made(servers, lease)
    (other,) = [claim.lease for claim in [*await _another(servers)]]
    (held,) = await tables.hold(servers.db, [(table, other)])
    assert not held.gone
    await servers.acknowledge(releases=[lease])
    assert await servers.counts() == {table: 1}
    assert not await tables.mark_dropping(servers.db)


async def _another(servers):
    await servers.submit("another")
    return await servers.claim()


async def test_arguments_are_held_by_the_job(servers):
    lease = await servers.attempt()
    table = await made(servers, lease)
    job, _ = await servers.submit("a", "b", tables=[(1, table), (2, table)])
    assert await servers.counts() == {table: 2}
    assert await servers.owners(table) == {"ATTEMPT", "JOB"}
    await servers.acknowledge(releases=[lease])
    await control.cancel_job(servers.db, job)
    await tables.release_ended_jobs(servers.db)
    assert await servers.counts() == {table: 0}


async def test_a_submit_with_a_table_that_is_not_there_inserts_nothing(servers):
    with pytest.raises(SubmitError, match=r"given the Object in table t7, which is released or unknown"):
        await servers.submit("a", tables=[(1, "t7")])
    assert await servers.db.fetchval("SELECT count(*) FROM jobs") == 0
    assert await servers.counts() == {}


async def chain(servers) -> tuple[int, str, str]:
    """A job of two tasks in a row, each with a table as its result."""
    job, _ = await servers.submit("first", "second", edges=((0, 1),))
    results = []
    for _ in range(2):
        (claim,) = await servers.claim()
        results.append(await made(servers, claim.lease))
        await servers.acknowledge(successes=[Success(claim.lease, "{}", tables=(results[-1],))])
    return job, *results


async def test_a_completed_job_keeps_its_final_results_only(servers):
    job, between, final = await chain(servers)
    assert await servers.counts() == {between: 1, final: 1}
    assert await tables.release_ended_jobs(servers.db) == 1
    assert await servers.counts() == {between: 0, final: 1}
    assert await tables.release_ended_jobs(servers.db) == 0
    assert await tables.release_jobs(servers.db, [job]) == 1
    assert await servers.counts() == {between: 0, final: 0}


async def test_a_job_that_runs_keeps_everything(servers):
    job, _ = await servers.submit("first", "second", edges=((0, 1),))
    (claim,) = await servers.claim()
    table = await made(servers, claim.lease)
    await servers.acknowledge(successes=[Success(claim.lease, "{}", tables=(table,))])
    assert await tables.release_ended_jobs(servers.db) == 0
    assert await servers.counts() == {table: 1}
    with pytest.raises(NotFoundError, match=r"no job \d+ that is over"):
        await tables.release_jobs(servers.db, [job])


async def test_a_failed_job_can_be_retried_for_a_day(servers):
    await servers.submit("first", "second", edges=((0, 1),))
    (claim,) = await servers.claim()
    table = await made(servers, claim.lease)
    await servers.acknowledge(successes=[Success(claim.lease, "{}", tables=(table,))])
    (claim,) = await servers.claim()
    await servers.acknowledge(failures=[Failure(claim.lease, "no", "no", permanent=True)])
    assert await tables.release_ended_jobs(servers.db) == 0
    tomorrow = await servers.db.fetchval("SELECT now() + interval '25 hours'")
    assert await tables.release_ended_jobs(servers.db, now=tomorrow) == 1
    assert await servers.counts() == {table: 0}


async def test_a_job_that_is_forgotten_releases_everything(servers):
    _, between, final = await chain(servers)
    later = await servers.db.fetchval("SELECT now() + interval '1 hour'")
    assert (await forget(servers.db, keep_seconds=1, now=later))["jobs"] == 1
    assert await servers.counts() == {between: 0, final: 0}


async def test_a_task_that_starts_over_releases_its_result(servers):
    _, between, final = await chain(servers)
    (first,) = await servers.db.fetch("SELECT id FROM tasks WHERE type = 'first'")
    await control.clear(servers.db, first["id"])
    assert await servers.counts() == {between: 0, final: 0}


async def test_completing_what_has_no_tables_does_not_look_at_them(servers):
    said = []
    for given in (None, ()):
        lease = await servers.attempt()
        with servers.db.query_logger(lambda record: said.append(record.query)):
            assert await servers.acknowledge(successes=[Success(lease, tables=given)]) == {lease.task_id}
        assert any("table_references" in query for query in said) is (given is not None)
