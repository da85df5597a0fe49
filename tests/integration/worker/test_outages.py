"""Outages of the installation's servers are not charged to tasks; errors of their code are."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace

import pytest

from aaiclick.chaos.tcp_proxy import TcpProxy
from aaiclick.data import DataContext, open_reference
from aaiclick.orchestration import OrchContext, create_job, create_task
from aaiclick.settings import get_settings
from tests.integration.gateways import AFTER_CLAIM, ONE_ORGANISATION, postgres_only

TASKS = """
import pathlib
from aaiclick.data import DataContext, create_object_from_value, get_data_context
from aaiclick.errors import UnreachableError
from aaiclick.server_addresses import ClickHouseEndpoint

async def give_when(path, value):
    pathlib.Path(path + ".began").touch()
    await wait_for(path)
    return value
async def give_rows_when(path):
    await give_when(path, None)
    def rows():
        yield {"x": [1, 2]}
        yield {"x": [3]}
    return rows()
async def add_one(number: int = 0) -> int: return number + 1
async def describe(number: int) -> dict[str, object]: return {"number": number, "name": "pen"}
async def repeat(number: int) -> list[int]: return [number] * 100
async def add_up(numbers: list[int], record: dict[str, object], items: list[int]) -> int:
    return sum(numbers) + record["number"] + sum(items)
async def store(): await create_object_from_value([1])
async def store_in_a_group():
    async with asyncio.TaskGroup() as group:
        for _ in range(3): group.create_task(store())
async def store_and_wrap():
    try: await store()
    except Exception as error: raise RuntimeError("no rows") from error
async def read(rows): return await rows.count()
async def hold_session():
    from sqlalchemy import text
    from aaiclick.orchestration import get_orch_context_session
    async with get_orch_context_session() as session:
        await session.execute(text("SELECT pg_sleep(CASE WHEN EXISTS (SELECT FROM task_attempts) THEN 0 ELSE 60 END)"))
async def hold_connection():
    from aaiclick.orchestration import get_current_context
    async with get_current_context().connection() as connection:
        await connection.execute("SELECT pg_sleep(CASE WHEN EXISTS (SELECT FROM task_attempts) THEN 0 ELSE 60 END)")
def refused(port):
    import socket
    socket.create_connection(("127.0.0.1", port))
async def foreign_clickhouse(port):
    async with DataContext(ClickHouseEndpoint("127.0.0.1", port, "u", "d")): pass
async def own_memory():
    await get_data_context().client.run(
        "SELECT groupArray(number) FROM numbers(10000000) FORMAT Null", settings={"max_memory_usage": 1000000})
async def shared_memory():
    await get_data_context().client.run(
        "SELECT groupArray(number) FROM numbers(10000000) FORMAT Null", settings={"max_memory_usage_for_user": 1})
async def too_many_queries():
    client = get_data_context().client
    settings = {"max_concurrent_queries_for_user": 1}
    await asyncio.gather(*(client.run("SELECT sleep(1) FORMAT Null", settings=settings) for _ in range(4)))
"""


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Network:
    """A proxy for ClickHouse that can be cut."""

    def __init__(self, proxy: TcpProxy) -> None:
        self.proxy = proxy
        self._upstream = proxy.upstream

    def cut(self) -> None:
        self.proxy.upstream = ("127.0.0.1", closed_port())
        self.proxy.cut()

    def restore(self) -> None:
        self.proxy.upstream = self._upstream


@pytest.fixture
async def network(aaiclick_env, aaiclick_clickhouse, monkeypatch):
    proxy = TcpProxy((aaiclick_clickhouse.host, aaiclick_clickhouse.port))
    await proxy.start()
    monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", replace(aaiclick_clickhouse, port=proxy.port).url)
    get_settings.cache_clear()
    yield Network(proxy)
    await proxy.stop()


@pytest.fixture
def outage_tasks(worker_env):
    with (worker_env.directory / "users_tasks.py").open("a") as file:
        file.write(TASKS)


pytestmark = pytest.mark.usefixtures("network", "outage_tasks")
"""`network` must be set up before `gateway` reads the settings."""


async def attempts(worker_env, task_id: int) -> list[tuple[str, bool]]:
    rows = await worker_env.rows(
        "SELECT outcome, charged FROM task_attempts WHERE task_id = $1 ORDER BY attempt", task_id
    )
    return [(row["outcome"], row["charged"]) for row in rows]


async def until_exists(path, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not path.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until_released(worker_env, task_id: int) -> None:
    await worker_env.wait_until(task_id, lambda row: row["next_retry_at"] is not None)


NO_LITERALS = {"AAICLICK_MAX_LITERAL_BYTES": "-1"}
"""Settings of a worker that stores every result as a table."""


@pytest.mark.parametrize("value", [7, {"a": [1, 2]}, [1, "x", None], "text"], ids=repr)
async def test_small_result_is_published_while_clickhouse_is_down(network, worker_env, value):
    go = worker_env.directory / "go"
    task_id = await worker_env.enqueue(
        "give_when", json.dumps({"path": str(go), "value": value}), max_attempts=1, repeatable=True
    )
    await asyncio.to_thread(worker_env.start)
    await until_exists(worker_env.directory / "go.began")
    network.cut()
    go.touch()
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["attempt"], row["failures"]) == ("COMPLETED", 1, 0), row["error"]


async def test_job_of_plain_values_completes_without_clickhouse(network, worker_env):
    """A fan-out, a chain, a fan-in, a dict and a list, with a server that is stopped before the worker starts."""
    network.cut()
    numbers = [create_task("users_tasks.add_one") for _ in range(20)]
    chain = [create_task("users_tasks.add_one")]
    for _ in range(10):
        chain.append(create_task("users_tasks.add_one", {"number": chain[-1]}))
    record = create_task("users_tasks.describe", {"number": chain[-1]})
    items = create_task("users_tasks.repeat", {"number": numbers[0]})
    total = create_task("users_tasks.add_up", {"numbers": numbers, "record": record, "items": items})
    async with OrchContext(endpoint=worker_env.endpoint):
        await create_job("plain values", total)
    await asyncio.to_thread(worker_env.start)
    row = await worker_env.wait_until(total.id, lambda row: row["completed_at"], seconds=60)
    assert (row["status"], row["failures"]) == ("COMPLETED", 0), row["error"]
    assert json.loads(row["literal"]) == {"value": 20 + 11 + 100}
    assert await worker_env.rows("SELECT FROM task_attempts") == []


@pytest.mark.parametrize("value", [7, {"a": [1, 2]}, [1, "x", None], "text"], ids=repr)
async def test_result_is_published_when_clickhouse_is_back(network, worker_env, value):
    go = worker_env.directory / "go"
    task_id = await worker_env.enqueue(
        "give_when", json.dumps({"path": str(go), "value": value}), max_attempts=1, repeatable=True
    )
    await asyncio.to_thread(worker_env.start, **NO_LITERALS)
    await until_exists(worker_env.directory / "go.began")
    network.cut()
    go.touch()
    log = worker_env.directory / "logs" / f"{task_id}.log"
    async with asyncio.timeout(30):
        while not (log.exists() and "Waiting to publish the result" in log.read_text()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    network.restore()
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["attempt"], row["failures"]) == ("COMPLETED", 1, 0), row["error"]


@postgres_only(AFTER_CLAIM)
async def test_a_generator_is_not_published_twice(network, worker_env):
    """The first attempt consumes it and is released; the next one produces all rows."""
    go = worker_env.directory / "go"
    task_id = await worker_env.enqueue("give_rows_when", json.dumps({"path": str(go)}), max_attempts=1, repeatable=True)
    await asyncio.to_thread(worker_env.start)
    await until_exists(worker_env.directory / "go.began")
    network.cut()
    go.touch()
    await until_released(worker_env, task_id)
    network.restore()
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["failures"]) == ("COMPLETED", 0), row["error"]
    async with DataContext():
        assert await (await open_reference(json.loads(row["result"]))).data() == {"x": [1, 2, 3]}


@pytest.mark.parametrize("function", ["store", "store_in_a_group", "store_and_wrap"])
async def test_an_outage_in_the_code_of_a_task_is_not_charged(network, worker_env, function):
    network.cut()
    task_id = await worker_env.enqueue(function, max_attempts=1, repeatable=True)
    await asyncio.to_thread(worker_env.start)
    await until_released(worker_env, task_id)
    row = await worker_env.task(task_id)
    assert "Released, not charged: " in row["error"]
    assert "does not answer" in row["error"]
    network.restore()
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["failures"]) == ("COMPLETED", 0), row["error"]


async def test_an_outage_while_inputs_are_loaded_is_not_charged(network, worker_env):
    producer = await worker_env.enqueue("echo", json.dumps({"word": [1, 2, 3]}))
    worker = await asyncio.to_thread(worker_env.start)
    row = await worker_env.wait_until(producer, lambda row: row["completed_at"])
    await asyncio.to_thread(worker.stop)
    network.cut()
    task_id = await worker_env.enqueue(
        "read", json.dumps({"rows": json.loads(row["result"])}), max_attempts=1, repeatable=True
    )
    await asyncio.to_thread(worker_env.start)
    await until_released(worker_env, task_id)
    network.restore()
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["failures"]) == ("COMPLETED", 0), row["error"]


@postgres_only(AFTER_CLAIM)
async def test_isolated_task_is_released_during_an_outage(network, worker_env):
    network.cut()
    task_id = await worker_env.enqueue("store", max_attempts=1, repeatable=True)
    await asyncio.to_thread(worker_env.start, "--isolation", "process")
    await until_released(worker_env, task_id)
    network.restore()
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["failures"]) == ("COMPLETED", 0), row["error"]


async def test_an_unreachable_service_of_the_task_itself_is_charged(worker_env):
    port = json.dumps({"port": closed_port()})
    ids = [
        await worker_env.enqueue(name, port, max_attempts=1, repeatable=True)
        for name in ("refused", "foreign_clickhouse")
    ]
    await asyncio.to_thread(worker_env.start)
    for task_id in ids:
        row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
        assert (row["status"], row["attempt"], row["failures"]) == ("DEAD_LETTER", 1, 1)
        assert await attempts(worker_env, task_id) == [("FAILED", True)]


@pytest.mark.parametrize("function", ["hold_session", "hold_connection"])
@postgres_only(ONE_ORGANISATION)
async def test_a_lost_postgres_connection_is_an_outage(worker_env, function):
    task_id = await worker_env.enqueue(function, max_attempts=1, repeatable=True)
    await asyncio.to_thread(worker_env.start)
    terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    async with asyncio.timeout(30):
        while not await worker_env.rows(terminate):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["failures"]) == ("COMPLETED", 0), row["error"]
    assert await attempts(worker_env, task_id) == [("RELEASED", False)]


@pytest.mark.parametrize("function", ["too_many_queries", "shared_memory"])
@postgres_only(AFTER_CLAIM)
async def test_an_overloaded_clickhouse_is_not_charged(worker_env, function):
    task_id = await worker_env.enqueue(function, max_attempts=1, repeatable=True)
    await asyncio.to_thread(worker_env.start)
    await until_released(worker_env, task_id)
    assert ("RELEASED", False) in await attempts(worker_env, task_id)


@postgres_only(AFTER_CLAIM)
async def test_the_memory_limit_of_one_query_is_charged(worker_env):
    task_id = await worker_env.enqueue("own_memory", max_attempts=1, repeatable=True)
    await asyncio.to_thread(worker_env.start)
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert row["status"] == "DEAD_LETTER"
    assert "emory limit" in row["error"]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"password": "wrong"}, "refused the user or password"), ({"database": "no_such"}, "'no_such' at")],
    ids=["password", "database"],
)
@postgres_only(AFTER_CLAIM)
async def test_a_wrong_clickhouse_configuration_is_not_charged(worker_env, aaiclick_clickhouse, change, message):
    task_id = await worker_env.enqueue("store", max_attempts=1, repeatable=True)
    url = replace(aaiclick_clickhouse, **change).url
    worker = await asyncio.to_thread(worker_env.start, AAICLICK_CLICKHOUSE_URL=url)
    await until_released(worker_env, task_id)
    assert message in (await worker_env.task(task_id))["error"]
    await asyncio.to_thread(worker.stop)
    await asyncio.to_thread(worker_env.start)
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["failures"]) == ("COMPLETED", 0), row["error"]
