"""Health checks in Python and over HTTP: each fails for its own reason."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from aaiclick.chaos.tcp_proxy import TcpProxy
from aaiclick.cli import doctor
from aaiclick.local import clickhouse_endpoint
from aaiclick.orchestration import health, health_check
from aaiclick.server.cache import QueryCache
from aaiclick.settings import get_settings
from aaiclick.store.engine import queue
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect

HOLDS = {"database", "workers", "stale_tasks", "events", "clickhouse"}

LEASED = """
    INSERT INTO tasks (id, type, status, readiness, attempt, worker_id, lease_token, lease_expires_at, claimed_at)
    VALUES (1, 't', 'RUNNING', NULL, 1, 9, gen_random_uuid(), now() + $1 * interval '1 second', now())
"""
FAILURES = {
    "workers": [
        "UPDATE workers SET last_heartbeat = now() - interval '1 day'",
        "UPDATE workers SET status = 'STOPPED', stopped_at = now()",
        "DELETE FROM workers",
    ],
    "stale_tasks": [LEASED.replace("$1", "-120")],
    "events": [
        f"""INSERT INTO outbox (org_id, status, kind, payload, processed_at, attempts, last_error)
        VALUES ('{DEFAULT_ORG_ID}', 'Failed', 'route_event', '{{}}', now(), 1, 'no such dataset')"""
    ],
}


@pytest.fixture
async def db(aaiclick_env, aaiclick_postgres):
    """A healthy installation: one worker with a heartbeat, and a task under a valid lease."""
    connection = await connect(aaiclick_postgres)
    await queue.register_worker(connection, hostname="h", pid=1)
    await connection.execute(LEASED.replace("$1", "60"))
    yield connection
    await connection.close()


async def failing() -> set[str]:
    health = await health_check()
    assert bool(health) is health.ok is all(check.ok for check in health.checks)
    return {check.name for check in health.checks if not check.ok}


async def test_health_check_is_true_if_all_checks_pass(db) -> None:
    health = await health_check()
    assert health, health
    assert {check.name for check in health.checks} == HOLDS


@pytest.mark.parametrize(
    ("check", "change"), [(name, statement) for name, changes in FAILURES.items() for statement in changes]
)
async def test_health_check_names_the_failing_check(db, check, change) -> None:
    await db.execute("DELETE FROM tasks")
    await db.execute(change)
    assert await failing() == {check}


@pytest.mark.parametrize(
    ("check", "variable", "address"),
    [
        ("database", "AAICLICK_DATABASE_URL", "postgresql://nobody:x@127.0.0.1:1/none"),
        ("clickhouse", "AAICLICK_CLICKHOUSE_URL", "http://nobody:x@127.0.0.1:1/none"),
    ],
)
async def test_health_check_names_an_unreachable_server(db, monkeypatch, check, variable, address) -> None:
    monkeypatch.setenv(variable, address)
    get_settings.cache_clear()
    assert await failing() == {check}
    [failed_check] = [check_result for check_result in (await health_check()).checks if check_result.name == check]
    assert "does not answer" in failed_check.detail


async def test_checks_of_a_hanging_clickhouse_time_out(db, monkeypatch) -> None:
    """ClickHouse accepts queries and never responds, like a stopped process, to a connected client."""
    endpoint = await clickhouse_endpoint(get_settings())
    proxy = TcpProxy((endpoint.host, endpoint.port))
    await proxy.start()
    monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", replace(endpoint, host="127.0.0.1", port=proxy.port).url)
    get_settings.cache_clear()
    assert await failing() == set()
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(doctor, "PING_TIMEOUT_SECONDS", 0.5)
    proxy.mode = "half-open"
    try:
        async with asyncio.timeout(10):
            assert await failing() == {"clickhouse"}
        result = await asyncio.wait_for(asyncio.to_thread(CliRunner().invoke, doctor.doctor, ["-o", "json"]), 60)
    finally:
        await proxy.stop()
    checks = {row["check"]: row for row in json.loads(result.stdout)}
    assert (checks["clickhouse"]["state"], checks["tables"]["state"]) == ("failed", "skipped")
    assert "does not answer within 0.5 s" in checks["clickhouse"]["detail"]
    assert "See the server's log" in checks["clickhouse"]["remedy"]
    assert checks["I1"]["state"] == "ok"


async def test_health_cache_has_a_maximum_ttl() -> None:
    """A check that timed out is not cached longer than a fast one."""
    cache = QueryCache(max_ttl_seconds=0.0)
    calls: list[int] = []

    async def find() -> int:
        await asyncio.sleep(0.01)
        calls.append(1)
        return len(calls)

    assert [await cache.get(DEFAULT_ORG_ID, find) for _ in range(3)] == [1, 2, 3]


def test_health_endpoint_is_503_without_an_active_worker(site) -> None:
    """A worker without heartbeats does not count; readiness does not depend on workers."""
    client = site.as_(None)
    site.sql("DELETE FROM workers RETURNING id")

    def states(path: str) -> tuple[int, bool, set[str]]:
        answer = client.get(path)
        failed = {check["name"] for check in answer.json()["checks"] if not check["ok"]}
        return answer.status_code, answer.json()["ok"], failed

    assert states("/health") == (503, False, {"workers"})
    assert states("/health/ready") == (200, True, {"workers"})
    site.run(lambda connection: queue.register_worker(connection, hostname="h", pid=1))
    assert _eventually(lambda: states("/health")) == (200, True, set())
    site.sql("UPDATE workers SET last_heartbeat = now() - interval '1 day' RETURNING id")
    assert states("/health/ready") == (200, True, {"workers"})
    site.sql("DELETE FROM workers RETURNING id")


def _eventually(states):
    """The first response that is not from the cache."""
    for _ in range(1000):
        if (state := states())[0] == 200:
            return state
    return states()
