"""A command that watches a job executes its tasks unless other workers can."""

import pytest

from aaiclick.cli.watch import has_other_workers
from aaiclick.orchestration import OrchContext
from aaiclick.store.engine import queue
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy import orgs
from tests.integration.engine.conftest import Engine


@pytest.mark.usefixtures("aaiclick_env")
async def test_only_workers_that_can_claim_ready_tasks_count(engine: Engine) -> None:
    other = (await orgs.create_org(engine.db, name="Other", slug="other")).id
    job_id = await engine.submit("a")
    await queue.deregister_worker(engine.db, engine.worker_id)
    in_vain = ({"org_id": other}, {"queues": ["elsewhere"]}, {"queues": ["runtime:lambda"]})
    helpful = ({}, {"org_id": DEFAULT_ORG_ID}, {"queues": ["elsewhere", "default"]})

    async def counted_on(**worker: object) -> bool:
        async with OrchContext(endpoint=engine.endpoint) as context:
            registered = await queue.register_worker(engine.db, hostname="afar", pid=1, **worker)  # pyright: ignore[reportArgumentType]
            is_available = await has_other_workers(context, job_id)
            (reason,) = await explain_task(engine.db, engine.id("a"))
            assert (reason.code == "no_worker") != is_available
            await engine.db.execute("UPDATE workers SET drain_requested_at = now() WHERE id = $1", registered.id)
            assert not await has_other_workers(context, job_id)
            await engine.db.execute(
                "UPDATE workers SET drain_requested_at = NULL, status = 'IDLE' WHERE id = $1", registered.id
            )
            assert await has_other_workers(context, job_id) == is_available
            await engine.db.execute(
                "UPDATE workers SET last_heartbeat = now() - interval '1 h' WHERE id = $1", registered.id
            )
            assert not await has_other_workers(context, job_id)
            await queue.deregister_worker(engine.db, registered.id)
        return is_available

    assert [await counted_on(**options) for options in in_vain] == [False, False, False]
    assert [await counted_on(**options) for options in helpful] == [True, True, True]


@pytest.mark.usefixtures("aaiclick_env")
async def test_each_queue_of_job_needs_a_worker(engine: Engine) -> None:
    async with OrchContext(endpoint=engine.endpoint) as context:
        job_id = await engine.submit("a")
        await engine.db.execute("UPDATE workers SET queues = '{default}'")
        assert await has_other_workers(context, job_id)
        await engine.submit("b", job="second", queue="rare")
        await engine.db.execute("UPDATE tasks SET job_id = $1", job_id)
        assert not await has_other_workers(context, job_id)
        assert {claim.type for claim in await engine.claim()} == {"a", "b"}
        assert await has_other_workers(context, job_id)
        await engine.db.execute("UPDATE workers SET queues = '{runtime:lambda}'")
        assert not await has_other_workers(context, job_id)
