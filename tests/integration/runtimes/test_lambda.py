"""Lambda functions: invoked by the dispatcher through moto, run in a process without a database.

Without containers moto runs no code, so the test passes accepted events to the handler in a separate process.
"""

from __future__ import annotations

import asyncio
import json
from subprocess import PIPE

import httpx
import pytest

from aaiclick.catalog.errors import DagError
from aaiclick.orchestration import create_job, create_task
from aaiclick.orchestration.loops.runtime_dispatcher import RuntimeDispatcher
from aaiclick.orchestration.runtimes import lambda_invoke
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.settings import get_settings
from aaiclick.store.engine import queries, queue
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.leases_and_outcomes import Success
from tests.fork_server import FORK_SERVER
from tests.integration.catalog.conftest import JOBS, order
from tests.integration.gateways import GatewayEndpoint
from tests.integration.runtimes.conftest import SECRET

FAR = f"""
name: shop
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {{kind: manual}}
    runtime: dispatcher
    outputs: [{{name: orders, partition_by: day}}]
    update_strategy: append
    unique_key: [id]
    config: {{function: "{JOBS}:fetch"}}
  - name: sums
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    runtime: lambda
    outputs: [daily]
    config: {{query: "SELECT day, sum(amount) AS total FROM orders GROUP BY day"}}
  - name: twice
    activation: reactive
    operator: python
    runtime: lambda
    inputs: [orders]
    outputs: [doubled]
    config: {{function: "{JOBS}:double"}}
  - name: ranges
    activation: reactive
    operator: range_aggregator
    runtime: lambda
    inputs: [ids]
    outputs: [whole]
    update_strategy: append
    unique_key: [start]
    config: {{size: 2, start: 1}}
  - name: ids
    activation: reactive
    operator: sql
    runtime: lambda
    outputs: [ids]
    config: {{query: "SELECT id AS position FROM doubled"}}
"""


FUNCTION = """
import json, sys
from aaiclick.orchestration.worker.lambda_handler import handle
for line in sys.stdin:
    print(json.dumps(handle(json.loads(line))), flush=True)
"""


class Functions:
    """Runs the recorded invocations in processes without a database."""

    def __init__(self, cloud, process, db) -> None:
        self.cloud = cloud
        self.process = process
        self.dispatcher = RuntimeDispatcher(get_settings().runtimes, resend_seconds=60, lease_seconds=60)
        self.db = db
        self.done = 0
        self.said: list[dict] = []

    async def run_once(self) -> None:
        """Run one pass; after the first task EVENT_BYTES is too small for arguments."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lambda_invoke, "EVENT_BYTES", 10 if self.done else lambda_invoke.EVENT_BYTES)
            await self.dispatcher.run_once(self.db)
        for event in self.cloud.events()[self.done :]:
            self.done += 1
            self.said.append(await self.invoke(event))

    async def invoke(self, event) -> dict:
        return await asyncio.to_thread(self._ask, json.dumps(event))

    def _ask(self, event: str) -> dict:
        self.process.stdin.write(event + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def server(server_thread, aaiclick_env, aaiclick_postgres):
    with server_thread.serve(aaiclick_postgres) as endpoint:
        yield GatewayEndpoint(endpoint).environment


@pytest.fixture
def far(cloud, runtimes, server, shop):
    with FORK_SERVER.start([FUNCTION], server, stdin=PIPE, stdout=PIPE, program="-c") as process:
        yield Functions(cloud, process, shop.db)
        process.stdin.close()
    assert process.returncode == 0


async def test_dag_runs_on_functions_without_database_access(far, shop, cloud, server):
    cloud.function("crunch")
    await shop.deploy(FAR)
    job_id = await shop.fire({"rows": [order(1, 1, 10), order(2, 1, 5), order(3, 2, 7)]})
    work = asyncio.create_task(run_until_job_ends(job_id))
    async with asyncio.timeout(100):
        while not work.done():
            await far.run_once()
            await asyncio.sleep(0.02)
    assert work.result().status.value == "COMPLETED", await shop.errors()
    assert await shop.rows("shop.daily") == [("2026-01-01", 15), ("2026-01-02", 7)]
    assert await shop.rows("shop.doubled") == [(1, 20), (2, 10), (3, 14)]
    assert await shop.rows("shop.whole") == [(1, 2)]
    assert {response["outcome"] for response in far.said} == {"completed"}
    assert await shop.db.fetchval("SELECT count(*) FROM tasks WHERE attempt <> 1") == 0
    state = json.loads(await shop.db.fetchval("SELECT state FROM operator_state"))
    assert state == {"cursor": 3, "pending": [[3, 3]]}
    await shop.check()

    assert {event["task"]["kwargs"] is None for event in cloud.events()} == {True, False}

    # Events contain the task and no secret; a duplicate event has no effect.
    settings = get_settings()
    secrets = [settings.clickhouse.password, settings.postgres.password, server["AAICLICK_API_KEY"], SECRET]
    assert not [secret for secret in secrets if secret and any(secret.encode() in body for body in cloud.invocations)]
    before = await shop.db.fetch("SELECT * FROM tasks ORDER BY id")
    assert (await far.invoke(cloud.events()[0]))["outcome"] == "lost"
    assert await shop.db.fetch("SELECT * FROM tasks ORDER BY id") == before
    workers = await shop.db.fetch("SELECT status::text FROM workers WHERE hostname = 'lambda:crunch'")
    assert [row["status"] for row in workers] == ["STOPPED"] * len(cloud.invocations)


async def test_missing_function_is_not_charged_and_is_reported(shop, runtimes, cloud):
    await shop.deploy(FAR)
    await shop.db.execute("UPDATE job_definitions SET runtime = 'lambda' WHERE name = 'fetch'")
    job_id = await shop.fire()
    dispatcher = RuntimeDispatcher(runtimes, resend_seconds=60, lease_seconds=60)
    assert (await dispatcher.run_once(shop.db))["invocations"] == 0
    task = await shop.db.fetchrow("SELECT * FROM tasks WHERE job_id = $1", job_id)
    assert (task["readiness"], task["failures"]) == ("READY", 0)
    (reason,) = await explain_task(shop.db, task["id"])
    assert "failed: " in reason.text
    assert "'crunch'" in reason.text
    cloud.function("crunch")
    assert (await dispatcher.run_once(shop.db))["invocations"] == 0  # in back-off
    other_dispatcher = RuntimeDispatcher(runtimes, resend_seconds=60, lease_seconds=60)
    assert (await other_dispatcher.run_once(shop.db))["invocations"] == 1
    await shop.check()


async def test_unconfigured_runtime_is_rejected_with_its_position(shop, cloud, monkeypatch):
    with pytest.raises(DagError) as caught:
        await shop.deploy(FAR)
    assert "dag.yaml:17:14: jobs[1].runtime: The runtime 'lambda' is not configured" in str(caught.value)
    assert "AAICLICK_RUNTIMES=lambda=FUNCTION" in str(caught.value)
    assert len(caught.value.problems) == 4
    assert await shop.db.fetchval("SELECT count(*) FROM dag_versions") == 0


async def test_event_equals_task_fetch_without_the_credential(cloud, runtimes, server, shop):
    cloud.function("crunch")
    first = create_task("m.first")
    second = create_task("m.second", {"x": first, "n": 3}, queue="runtime:lambda", timeout_seconds=30)
    await create_job("payload", second)
    worker = await queue.register_worker(shop.db, hostname="h", pid=1)
    (claim,) = await queue.claim(shop.db, worker_id=worker.id, limit=1, queues=[], lease_seconds=60)
    await queue.acknowledge(shop.db, worker_id=worker.id, successes=[Success(claim.lease, '{"a": [7]}')])
    await RuntimeDispatcher(runtimes, resend_seconds=60, lease_seconds=45).run_once(shop.db)
    (event,) = cloud.events()
    async with httpx.AsyncClient(
        base_url=server["AAICLICK_SERVER"], headers={"Authorization": f"Bearer {server['AAICLICK_API_KEY']}"}
    ) as client:
        answer = await client.post(
            "/v1/worker-api/tasks/fetch", json={"lease": event["task"]["lease"], "code_version": "v7"}
        )
    fetched = answer.json()
    assert answer.status_code == 200, fetched
    assert list(event) == list(fetched)
    assert event["clickhouse"] is None
    credential = {"clickhouse", "no_clickhouse", "clickhouse_unreachable"}
    assert {name: value for name, value in event.items() if name not in credential} == {
        name: value for name, value in fetched.items() if name not in credential
    }
    assert event["task"]["kwargs"] == {"x": {"a": [7]}, "n": 3}
    assert event["lease_seconds"] == 45
    assert (await queries.get_task(shop.db, second.id))["code_version"] == "v7"
