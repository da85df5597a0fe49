"""SQS runtimes: dispatch, wake-ups, and lost or duplicate messages."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from aaiclick.orchestration.loops.runtime_dispatcher import RuntimeDispatcher
from aaiclick.server_addresses import RuntimeEndpoint
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queue
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions

UDF = "runtime:ecs_udf"


@pytest.fixture
async def db(aaiclick_env, aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


async def enqueue(db, name: str, count: int = 1) -> list[int]:
    tasks = [NewTask(get_snowflake_id(), "t", options=TaskOptions(queue=name)) for _ in range(count)]
    return await enqueue_tasks(db, tasks, DEFAULT_ORG_ID)


async def claimed(db, *queues: str, org_id=None) -> list[int]:
    claims = await queue.claim(db, worker_id=7, limit=10, queues=queues, lease_seconds=60, org_id=org_id)
    await queue.acknowledge(db, worker_id=7, releases=[claim.lease for claim in claims])
    return [claim.lease.task_id for claim in claims]


async def test_workers_without_queues_do_not_claim_runtime_tasks(db):
    (far,) = await enqueue(db, UDF)
    assert await claimed(db) == []  # alone in the index of ready tasks
    (plain,), (near,) = await enqueue(db, "default"), await enqueue(db, "runtime:dispatcher")
    assert sorted(await claimed(db)) == sorted([plain, near])
    assert await claimed(db, org_id=DEFAULT_ORG_ID) == [plain]  # HTTP workers do not claim tasks of the dispatcher
    assert await claimed(db, UDF) == [far]


def dispatcher(*endpoints, resend_seconds=60.0):
    return RuntimeDispatcher(endpoints, resend_seconds=resend_seconds, lease_seconds=60.0)


async def test_message_is_sent_once_and_resent_if_the_task_is_not_claimed(db, cloud):
    tasks = await enqueue(db, UDF, 12)
    reasons = await explain_task(db, tasks[0])
    assert "'ecs_udf'; not dispatched yet" in reasons[0].text
    teller, start = dispatcher(RuntimeEndpoint("ecs_udf", cloud.url)), await db.fetchval("SELECT now()")

    async def dispatch(seconds=0):
        return (await teller.run_once(db, now=start + timedelta(seconds=seconds)))["messages"]

    assert [await dispatch(), await dispatch()] == [12, 0]
    messages = cloud.messages()
    assert sorted(int(message["task_id"]) for message in messages) == sorted(tasks)
    assert all(list(message) == ["task_id"] for message in messages)  # only ids
    reasons = await explain_task(db, tasks[0])
    assert "dispatched once" in reasons[0].text
    assert "worker start --runtime ecs_udf" in reasons[0].text

    # A released task is sent again at once, the others after one minute, then after two more.
    claims = await queue.claim(db, worker_id=7, limit=1, queues=[UDF], lease_seconds=60)
    await dispatch()
    await queue.acknowledge(db, worker_id=7, releases=[claim.lease for claim in claims])
    assert await dispatch() == 1
    assert [await dispatch(seconds) for seconds in (59, 62, 130, 190)] == [0, 12, 0, 12]
    await db.execute("UPDATE orgs SET paused_at = now()")
    assert await dispatch(86_400) == 0


async def test_unreachable_queue_is_reported_as_the_reason(db, cloud):
    (task,) = await enqueue(db, UDF)
    assert (await dispatcher(RuntimeEndpoint("ecs_udf", cloud.url + "-not")).run_once(db))["messages"] == 0
    (reason,) = await explain_task(db, task)
    assert reason.code == "runtime"
    assert "failed: " in reason.text
    assert "NonExistentQueue" in reason.text


async def test_queue_of_an_organisation_gets_only_its_tasks(db, cloud):
    other = cloud.sqs.create_queue(QueueName="other")["QueueUrl"]
    acme = await db.fetchval("INSERT INTO orgs (name, slug) VALUES ('Acme', 'acme') RETURNING id")
    (org_task,) = await enqueue(db, UDF)
    await enqueue_tasks(db, [NewTask(get_snowflake_id(), "t", options=TaskOptions(queue=UDF))], acme)
    await dispatcher(RuntimeEndpoint("ecs_udf", cloud.url), RuntimeEndpoint("ecs_udf", other, "acme")).run_once(db)
    assert [int(message["task_id"]) for message in cloud.messages()] == [org_task]
    assert len(cloud.sqs.receive_message(QueueUrl=other)["Messages"]) == 1


async def test_lost_duplicate_and_invalid_messages_are_harmless(cloud, runtimes, worker_env):
    """All messages are lost once, then arrive with invalid ones."""
    variables = {"AAICLICK_RUNTIMES": f"ecs_udf={cloud.url}"}
    tasks = await worker_env.enqueue_many(5, "echo", json.dumps({"word": "udf"}), queue=UDF)
    db = await connect(worker_env.endpoint)
    teller, later = dispatcher(*runtimes[:1]), await db.fetchval("SELECT now() + interval '1 day'")
    assert (await teller.run_once(db, now=later))["messages"] == 5
    cloud.sqs.purge_queue(QueueUrl=cloud.url)
    assert worker_env.start("--runtime", "ecs_udf", "--drain", **variables).wait() == 0
    assert {(await worker_env.task(task_id))["attempt"] for task_id in tasks} == {0}  # no wake-up
    for body in (
        "not json",
        json.dumps({"task_id": "1"}),
        *[json.dumps({"task_id": str(task_id)}) for task_id in tasks[:2]],
    ):
        cloud.sqs.send_message(QueueUrl=cloud.url, MessageBody=body)
    assert (await teller.run_once(db, now=later + timedelta(days=1)))["messages"] == 5
    await db.close()
    assert worker_env.start("--runtime", "ecs_udf", "--drain", **variables).wait() == 0
    rows = [await worker_env.task(task_id) for task_id in tasks]
    assert [(row["status"], row["attempt"]) for row in rows] == [("COMPLETED", 1)] * 5
    assert cloud.waiting() == 0


async def test_dispatcher_tasks_run_in_the_worker_that_dispatches(cloud, runtimes, worker_env, gateway_kind):
    """No message or invocation is sent for them; HTTP workers do not claim them."""
    cloud.function("crunch")
    tasks = await worker_env.enqueue_many(3, "nothing", queue="runtime:dispatcher")
    variables = {"AAICLICK_RUNTIMES": f"ecs_udf={cloud.url},lambda=crunch"}
    if gateway_kind == "server":
        assert worker_env.start("--drain", **variables).wait() == 0
        assert [(await worker_env.task(task_id))["attempt"] for task_id in tasks] == [0] * 3
        return
    worker = worker_env.start(**variables)
    rows = [await worker_env.wait_until(task_id, lambda row: row["completed_at"] is not None) for task_id in tasks]
    assert [row["status"] for row in rows] == ["COMPLETED"] * 3
    own = {worker.process.pid, *(child.pid for child in worker.children())}
    pids = await worker_env.rows("SELECT DISTINCT w.pid FROM tasks t JOIN workers w ON w.id = t.worker_id")
    assert {row["pid"] for row in pids} <= own
    assert (cloud.events(), cloud.messages()) == ([], [])
    assert await worker_env.rows("SELECT * FROM dispatches") == []
