"""The Python client, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import inspect
import json

import pytest

from aaiclick import client
from aaiclick.api.dead_letters import RedriveRequest
from aaiclick.client import AsyncClient, AsyncJobHandle, Client, JobHandle
from aaiclick.client.requests import ERRORS
from aaiclick.errors import (
    ForbiddenError,
    JobFailedError,
    NotFoundError,
    RequestError,
    UnauthorisedError,
    UnreachableError,
)
from aaiclick.server.problem_responses import PROBLEM_TYPES
from tests.documentation import list_examples
from tests.integration.server.conftest import with_connection


def test_client_submits_and_lists_jobs_and_tasks(site) -> None:
    with Client(site.server.url, site.keys["writer"]) as client:
        job_id = client.create_job("mine", "m.f", {"x": 1}).id
        assert client.get_job(job_id).status == "PENDING"
        [task] = client.list_tasks(job_id)
        assert client.get_task(task.id).kwargs == {"x": 1}
        assert client.explain_task(task.id)[0].code
        assert client.cancel_job(job_id).outcome == "cancelled"
        assert client.wait_for_job(job_id).status == "CANCELLED"
        graph = client.create_job("g", tasks=[{"key": "a", "entrypoint": "m.a"}, {"key": "b", "entrypoint": "m.b"}]).id
        assert graph > job_id
        ids = client.enqueue([{"type": "t", "queue": "named/oddly"}] * 250).ids
        assert len({task.id for task in client.list_tasks(type="t", limit=100)}) == 250
        assert client.read_task_log(ids[0]).text == ""
        client.pause_queue("named/oddly")
        assert {queue.name: queue.paused_at for queue in client.list_queues()}["named/oddly"]
        client.resume_queue("named/oddly")
        assert list(client.list_dead_letters()) == []
        assert client.redrive_dead_letters(RedriveRequest(all=True)).count == 0
        assert client.whoami().org_id == site.org


async def test_every_class_of_the_client_has_an_example_that_runs(site, tmp_path) -> None:
    for example in list_examples(client, client.__all__):
        assert example.text, example
        public = {name: getattr(client, name) for name in client.__all__}
        await example.run(tmp_path / f"{example}.py", public | {"url": site.server.url, "key": site.keys["writer"]})


def test_handle_of_a_job_follows_it_over_http(site) -> None:
    with Client(site.server.url, site.keys["writer"]) as client:
        handle = JobHandle(client, client.create_job("mine", "m.f").id)
        assert (handle.status(), [(group.total, group.completed) for group in handle.progress()]) == (
            "PENDING",
            [(1, 0)],
        )
        with pytest.raises(TimeoutError):
            handle.wait(0)
        assert "tasks: 0 of 1" in handle._repr_html_()
        assert (handle.cancel(), handle.status(), handle.cancel(), handle.logs()) == (True, "CANCELLED", False, "")
        with pytest.raises(JobFailedError, match="is CANCELLED"):
            handle.result()


async def complete_job(connection, job_id):
    """Complete the only task of a job, with a value that is stored as a literal."""
    await connection.execute(
        """UPDATE tasks SET status = 'COMPLETED', readiness = NULL, completed_at = now(), literal = $2,
        result = '{"object_type": "object", "table_id": "t1"}' WHERE job_id = $1""",
        job_id,
        json.dumps({"value": VALUE}),
    )
    await connection.execute(
        "UPDATE jobs SET status = 'COMPLETED', completed_at = now(), open_tasks = 0 WHERE id = $1", job_id
    )


VALUE = {"days": list(range(50)), "name": "1,000"}


@pytest.fixture
def completed_job_id(site):
    with Client(site.server.url, site.keys["writer"]) as client:
        job_id = client.create_job("found", "m.f").id
    asyncio.run(with_connection(site.endpoint, lambda connection: complete_job(connection, job_id)))
    return job_id


def test_handles_of_a_completed_job_return_its_values(site, completed_job_id) -> None:
    with Client(site.server.url, site.keys["writer"]) as client:
        handle = JobHandle(client, completed_job_id)
        assert handle.result(60) == VALUE
        assert "tasks: 1 of 1" in handle._repr_html_()

    async def read_with_async_client():
        async with AsyncClient(site.server.url, site.keys["writer"]) as client:
            handle = AsyncJobHandle(client, completed_job_id)
            assert await handle.logs() == ""
            assert (await handle.status(), await handle.cancel()) == ("COMPLETED", False)
            assert [group.completed for group in await handle.progress()] == [1]
            return await handle.result(60)

    assert asyncio.run(read_with_async_client()) == VALUE


async def test_async_client_returns_the_same(site) -> None:
    async with AsyncClient(site.server.url, site.keys["writer"]) as client:
        created = await client.create_job("theirs", "m.f")
        assert created.id in [job.id async for job in client.list_jobs(status="PENDING", limit=1)]
        assert (await client.get_job(created.id)).name == "theirs"


def test_errors_become_aaiclick_exceptions(site) -> None:
    with Client(site.server.url, site.keys["reader"]) as client:
        with pytest.raises(NotFoundError, match="There is no job 1"):
            client.get_job(1)
        with pytest.raises(ForbiddenError, match="lacks the permission 'writer'"):
            client.create_job("x", "m.f")
    with Client(site.server.url, site.keys["writer"]) as client, pytest.raises(RequestError, match=r"body\.entrypoint"):
        client.create_job("x", "not an entry point")
    with Client(site.server.url, "aai_wrong") as client, pytest.raises(UnauthorisedError, match="Invalid credential"):
        client.whoami()
    with Client("http://127.0.0.1:1") as client, pytest.raises(UnreachableError, match="does not answer"):
        client.whoami()


def test_both_clients_have_the_same_methods() -> None:
    def offered(client_class) -> set[str]:
        return {name for name, _ in inspect.getmembers(client_class, inspect.isfunction) if not name.startswith("_")}

    assert offered(Client) - {"close"} == offered(AsyncClient)


def test_client_maps_every_error_code_of_the_server() -> None:
    assert {problem_type.code for problem_type in PROBLEM_TYPES.values()} - set(ERRORS) == {"internal"}
