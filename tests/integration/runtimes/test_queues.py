"""Tasks that wait for a runtime: nobody else takes them, and messages about them may come as they like."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from aaiclick.orchestration.loops.dispatcher import Dispatcher
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import queue
from aaiclick.store.engine import connect
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.plan import NewTask
from aaiclick.store.waiting import why_waiting
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import RuntimeTarget

UDF = "runtime:ecs_udf"


@pytest.fixture
async def db(aaiclick_env, aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


async def enqueue(db, name: str, count: int = 1) -> list[int]:
    tasks = [NewTask(get_snowflake_id(), "t", queue=name) for _ in range(count)]
    return await enqueue_tasks(db, tasks, DEFAULT_ORG_ID)


async def claimed(db, *queues: str, org_id=None) -> list[int]:
    found = await queue.claim(db, worker_id=7, limit=10, queues=queues, lease_seconds=60, org_id=org_id)
    await queue.acknowledge(db, worker_id=7, releases=[each.lease for each in found])
    return [each.lease.task_id for each in found]


async def test_workers_that_name_no_queue_leave_tasks_of_runtimes_alone(db):
    (far,) = await enqueue(db, UDF)
    assert await claimed(db) == []  # alone in the index of ready tasks
    (plain,), (near,) = await enqueue(db, "default"), await enqueue(db, "runtime:dispatcher")
    assert sorted(await claimed(db)) == sorted([plain, near])
    assert await claimed(db, org_id=DEFAULT_ORG_ID) == [plain]  # who comes from a server runs nothing of the dispatcher
    assert await claimed(db, UDF) == [far]


def dispatcher(*targets, again_seconds=60.0):
    return Dispatcher(targets, again_seconds=again_seconds, lease_seconds=60.0)


async def test_a_runtime_is_told_of_each_task_once_and_again_when_nobody_takes_it(db, cloud):
    tasks = await enqueue(db, UDF, 12)
    reasons = await why_waiting(db, tasks[0])
    assert "'ecs_udf', which was not told yet" in reasons[0].words
    teller, start = dispatcher(RuntimeTarget("ecs_udf", cloud.url)), await db.fetchval("SELECT now()")

    async def told(seconds=0):
        return (await teller.run_once(db, now=start + timedelta(seconds=seconds)))["messages"]

    assert [await told(), await told()] == [12, 0]
    messages = cloud.messages()
    assert sorted(int(each["task_id"]) for each in messages) == sorted(tasks)
    assert all(list(each) == ["task_id"] for each in messages)  # ids, and nothing else
    reasons = await why_waiting(db, tasks[0])
    assert "told once" in reasons[0].words
    assert "worker start --runtime ecs_udf" in reasons[0].words

    # One was taken and given back: that is news. The others are told again after a minute, then after two more.
    claims = await queue.claim(db, worker_id=7, limit=1, queues=[UDF], lease_seconds=60)
    await told()
    await queue.acknowledge(db, worker_id=7, releases=[each.lease for each in claims])
    assert await told() == 1
    assert [await told(seconds) for seconds in (59, 62, 130, 190)] == [0, 12, 0, 12]
    await db.execute("UPDATE orgs SET paused_at = now()")
    assert await told(86_400) == 0


async def test_a_queue_that_cannot_be_reached_is_the_reason_of_the_wait(db, cloud):
    (task,) = await enqueue(db, UDF)
    assert (await dispatcher(RuntimeTarget("ecs_udf", cloud.url + "-not")).run_once(db))["messages"] == 0
    (reason,) = await why_waiting(db, task)
    assert reason.code == "runtime"
    assert "could not be told" in reason.words
    assert "NonExistentQueue" in reason.words


async def test_a_queue_of_an_organisation_carries_its_tasks_alone(db, cloud):
    other = cloud.sqs.create_queue(QueueName="other")["QueueUrl"]
    acme = await db.fetchval("INSERT INTO orgs (name, slug) VALUES ('Acme', 'acme') RETURNING id")
    (ours,) = await enqueue(db, UDF)
    await enqueue_tasks(db, [NewTask(get_snowflake_id(), "t", queue=UDF)], acme)
    await dispatcher(RuntimeTarget("ecs_udf", cloud.url), RuntimeTarget("ecs_udf", other, "acme")).run_once(db)
    assert [int(each["task_id"]) for each in cloud.messages()] == [ours]
    assert len(cloud.sqs.receive_message(QueueUrl=other)["Messages"]) == 1


async def test_lost_doubled_and_strange_messages_change_nothing(cloud, runtimes, bench):
    """All messages are lost once, then come with others. (The clock is ours: workers tell of what is not told yet.)"""
    variables = {"AAICLICK_RUNTIMES": f"ecs_udf={cloud.url}"}
    tasks = await bench.enqueue_many(5, "echo", json.dumps({"word": "udf"}), queue=UDF)
    db = await connect(bench.target)
    teller, later = dispatcher(*runtimes[:1]), await db.fetchval("SELECT now() + interval '1 day'")
    assert (await teller.run_once(db, now=later))["messages"] == 5
    cloud.sqs.purge_queue(QueueUrl=cloud.url)
    assert bench.start("--runtime", "ecs_udf", "--drain", **variables).wait() == 0
    assert {(await bench.task(each))["attempt"] for each in tasks} == {0}  # nobody called it
    for body in ("not json", json.dumps({"task_id": "1"}), *[json.dumps({"task_id": str(each)}) for each in tasks[:2]]):
        cloud.sqs.send_message(QueueUrl=cloud.url, MessageBody=body)
    assert (await teller.run_once(db, now=later + timedelta(days=1)))["messages"] == 5
    await db.close()
    assert bench.start("--runtime", "ecs_udf", "--drain", **variables).wait() == 0
    rows = [await bench.task(each) for each in tasks]
    assert [(row["status"], row["attempt"]) for row in rows] == [("COMPLETED", 1)] * 5
    assert cloud.waiting() == 0


async def test_dispatcher_tasks_run_in_the_worker_that_dispatches(cloud, runtimes, bench, transport):
    """Nothing is sent to SQS or Lambda for them, though both are set up; a worker without a database leaves them."""
    cloud.function("crunch")
    tasks = await bench.enqueue_many(3, "nothing", queue="runtime:dispatcher")
    variables = {"AAICLICK_RUNTIMES": f"ecs_udf={cloud.url},lambda=crunch"}
    if transport == "server":
        assert bench.start("--drain", **variables).wait() == 0
        assert [(await bench.task(task_id))["attempt"] for task_id in tasks] == [0] * 3
        return
    worker = bench.start(**variables)
    rows = [await bench.until(task_id, lambda row: row["completed_at"] is not None) for task_id in tasks]
    assert [row["status"] for row in rows] == ["COMPLETED"] * 3
    own = {worker.process.pid, *(child.pid for child in worker.children())}
    pids = await bench.rows("SELECT DISTINCT w.pid FROM tasks t JOIN workers w ON w.id = t.worker_id")
    assert {row["pid"] for row in pids} <= own
    assert (cloud.events(), cloud.messages()) == ([], [])
    assert await bench.rows("SELECT * FROM dispatches") == []
