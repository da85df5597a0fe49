"""The Python client, synchronous and asynchronous."""

from __future__ import annotations

import inspect

import pytest

from aaiclick.api.dead_letters import RedriveRequest
from aaiclick.client import AsyncClient, Client
from aaiclick.client.requests import ERRORS
from aaiclick.errors import ForbiddenError, NotFoundError, RequestError, UnauthorisedError, UnreachableError
from aaiclick.server.problems import PROBLEM_TYPES


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
