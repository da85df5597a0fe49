"""A command that watches a job works itself unless somebody else is there who could."""

import pytest

from aaiclick.cli.watching import others_work
from aaiclick.orchestration import OrchContext
from aaiclick.store import orgs, queue
from aaiclick.store.waiting import why_waiting
from aaiclick.store.words import DEFAULT_ORG_ID
from tests.integration.engine.conftest import Engine


@pytest.mark.usefixtures("aaiclick_env")
async def test_only_workers_that_could_claim_what_a_job_has_ready_are_counted_on(engine: Engine) -> None:
    other = (await orgs.create_org(engine.db, name="Other", slug="other"))["id"]
    job_id = await engine.submit("a")
    await queue.deregister_worker(engine.db, engine.worker_id)
    in_vain = ({"org_id": other}, {"queues": ["elsewhere"]}, {"queues": ["runtime:lambda"]})
    helpful = ({}, {"org_id": DEFAULT_ORG_ID}, {"queues": ["elsewhere", "default"]})

    async def counted_on(**worker: object) -> bool:
        async with OrchContext(target=engine.target) as context:
            found = await queue.register_worker(engine.db, hostname="afar", pid=1, **worker)  # pyright: ignore[reportArgumentType]
            there = await others_work(context, job_id)
            (reason,) = await why_waiting(engine.db, engine.id("a"))
            assert (reason.code == "no_worker") != there
            await engine.db.execute("UPDATE workers SET drain_requested_at = now() WHERE id = $1", found.id)
            assert not await others_work(context, job_id)
            await engine.db.execute(
                "UPDATE workers SET drain_requested_at = NULL, status = 'IDLE' WHERE id = $1", found.id
            )
            assert await others_work(context, job_id) == there
            await engine.db.execute(
                "UPDATE workers SET last_heartbeat = now() - interval '1 h' WHERE id = $1", found.id
            )
            assert not await others_work(context, job_id)
            await queue.deregister_worker(engine.db, found.id)
        return there

    assert [await counted_on(**each) for each in in_vain] == [False, False, False]
    assert [await counted_on(**each) for each in helpful] == [True, True, True]


@pytest.mark.usefixtures("aaiclick_env")
async def test_each_queue_of_a_job_needs_somebody_and_one_that_waits_for_others_anybody(engine: Engine) -> None:
    async with OrchContext(target=engine.target) as context:
        job_id = await engine.submit("a")
        await engine.db.execute("UPDATE workers SET queues = '{default}'")
        assert await others_work(context, job_id)
        await engine.submit("b", job="second", queue="rare")
        await engine.db.execute("UPDATE tasks SET job_id = $1", job_id)
        assert not await others_work(context, job_id)
        assert {claim.type for claim in await engine.claim()} == {"a", "b"}
        assert await others_work(context, job_id)
        await engine.db.execute("UPDATE workers SET queues = '{runtime:lambda}'")
        assert not await others_work(context, job_id)
