"""MCP tools: a scripted assistant finds the causes of seeded failures; changes need a plan; no secret is answered."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from pydantic import SecretStr

from aaiclick.api.tenancy import SetSecretRequest
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.mcp import check_installation
from aaiclick.data import create_object_from_query, create_object_from_value
from aaiclick.data.expectations import unique
from aaiclick.mcp.server import OperationsThread, build_server
from aaiclick.mcp.tool_results import MAX_BYTES, render, shorten
from aaiclick.orchestration import (
    OrchContext,
    create_job,
    create_task,
    enqueue,
    get_secret,
    handler,
    run_job_test,
    task,
)
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy.api_keys import create_key
from tests.fork_server import FORK_SERVER
from tests.integration.server.conftest import start_server
from tests.mcp_assistant import Assistant, open_http_client

WRITE_NAMES = {"retry_job", "cancel_job", "clear_task", "redrive_dead_letters", "deploy_dag"}
CANARY = "canary-7f3a9b"
MAX_CALLS = 6


async def divide(total: int) -> float:
    return total / 0


async def parse() -> int:
    return int("12 EUR")


async def missing_column() -> object:
    orders = await create_object_from_value({"price": [1, 2]})
    return await orders["prise"].sum().data()


async def slow() -> None:
    await asyncio.sleep(60)


def logged() -> None:
    logging.getLogger("shop").error("the warehouse answered 503 for item 4711")
    raise RuntimeError("gave up")


async def leaks() -> None:
    secret = await get_secret("mail")
    print(f"connecting with {secret}")
    raise ConnectionRefusedError(f"mail.example.org refused {secret}")


@task(tests=[unique("id")])
def repeated() -> list[dict[str, int]]:
    return [{"id": 7}, {"id": 7}]


async def refused_query() -> object:
    return await create_object_from_query(
        "SELECT throwIf(number = 3, 'the price of item 3 is negative') FROM numbers(9)"
    )


def lost() -> None:
    """Kill the worker process, as the kernel does if memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


@handler("letter:send")
def send(to: str) -> None:
    raise RuntimeError(f"the mailbox of {to} is full")


async def fine(value: object = None) -> int:
    return 1


FAILED = {
    "divide": (divide, "ZeroDivisionError"),
    "parse": (parse, "invalid literal for int() with base 10: '12 EUR'"),
    "missing column": (missing_column, "prise"),
    "slow": (slow, "0.3"),
    "logged": (logged, "the warehouse answered 503 for item 4711"),
    "leaks": (leaks, "ConnectionRefusedError"),
    "repeated": (repeated, "unique: id"),
    "refused query": (refused_query, "the price of item 3 is negative"),
    "lost": (lost, "The worker process ended with"),
}
DEAD_LETTER = "the mailbox of ada@example.org is full"
WAITING = {
    "paused": ({"queue": "held"}, "paused"),
    "no worker": ({"queue": "gpu"}, "no worker"),
    "later": ({"run_at": datetime.now(UTC) + timedelta(days=2)}, "scheduled"),
}


@pytest.fixture
async def assistant(aaiclick_env):
    """Returns a function that connects an assistant to a server with or without changes."""
    threads: list[OperationsThread] = []

    def open_client(max_changes: int = 0) -> Client:
        threads.append(OperationsThread(open_operations, max_changes=max_changes))
        return Client(build_server(threads[-1], more_tools=[check_installation], changes=max_changes > 0))

    yield open_client
    for thread in threads:
        thread.close()


@asynccontextmanager
async def connect_over_http(log: Path, scope: str = "reader", **variables: str) -> AsyncIterator[Client]:
    """Start a server on the databases of this test and connect an assistant with a key of `scope`."""
    connection = await connect(get_settings().postgres)
    try:
        key = await create_key(connection, org_id=DEFAULT_ORG_ID, name="assistant", scopes=[scope])
    finally:
        await connection.close()
    server = await asyncio.to_thread(start_server, dict(os.environ) | variables, log)
    try:
        async with open_http_client(server.url, key.text) as client:
            yield client
    finally:
        assert await asyncio.to_thread(server.stop) == 0


async def seed() -> dict[str, str]:
    """Run jobs that fail and submit tasks that wait; returns the ids of the waiting tasks by name."""
    options: dict[str, dict[str, Any]] = {"slow": {"timeout_seconds": 0.3}, "lost": {"queue": "worker"}}
    async with OrchContext():
        await enqueue("letter:send", {"to": "ada@example.org"}, queue="worker", retries=0)
        for name, (function, _) in FAILED.items():
            arguments = {"total": 3} if function is divide else {}
            first = create_task(function, arguments, retries=0, **options.get(name, {}))
            job = await create_job(name, create_task(fine, {"value": first}))
            if function is lost:
                worker = ["worker", "start", "--queue", "worker", "--import", __name__, "--processes", "1", "--drain"]
                assert await asyncio.to_thread(FORK_SERVER.start(worker, dict(os.environ)).wait, 60) == 0
            else:
                await asyncio.to_thread(run_job_test, job)
        waiting = {}
        for name, (task_options, _) in WAITING.items():
            submitted = create_task(fine, {}, **task_options)
            await create_job(name, submitted)
            waiting[name] = str(submitted.id)
        blocked = create_task(fine, {"value": create_task(fine, {}, queue="held")})
        await create_job("blocked", blocked)
        waiting["blocked"] = str(blocked.id)
    return waiting


def pause_and_grant() -> None:
    with open_operations() as operations:
        operations.pause_queue("held")
        operations.set_secret("mail", SetSecretRequest(value=SecretStr(CANARY)))


@pytest.mark.timeout(90)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_scripted_assistant_finds_the_cause_of_every_seeded_failure(
    assistant, monkeypatch, tmp_path, transport: str
) -> None:
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    monkeypatch.setenv("AAICLICK_HOME", str(tmp_path / "home"))
    get_settings.cache_clear()
    await asyncio.to_thread(pause_and_grant)
    waiting = await seed()
    opened = assistant() if transport == "stdio" else connect_over_http(tmp_path / "server.log")
    async with opened as client:
        ask = Assistant(client)
        failures = {job["name"]: job["id"] for job in (await ask("list_failures"))["jobs"]}
        assert len((await ask("list_failures", hours=1e308))["jobs"]) == len(failures)
        assert failures.keys() == FAILED.keys()
        assert len(failures) + 1 == 10  # and a dead letter
        for name, job_id in failures.items():
            ask.calls = 1
            explained = await ask("explain_failure", job_id=job_id)
            [failed] = explained["first_failed_tasks"]
            assert explained["cancelled_because_of_them"] == 1
            log = await ask("read_log", task_id=failed["id"])
            assert FAILED[name][1] in json.dumps([failed, log]), (name, failed, log)
            assert ask.calls <= MAX_CALLS
        ask.calls = 0
        groups = (await ask("list_failures"))["dead_letters_by_error"]
        [fingerprint] = [group["fingerprint"] for group in groups if group["type"] == "letter:send"]
        [letter] = (await ask("list_dead_letters", fingerprint=fingerprint))["dead_letters"]
        assert DEAD_LETTER in letter["error"]
        assert ask.calls <= MAX_CALLS
        for name, task_id in waiting.items():
            explained = await ask("explain_task", task_id=task_id)
            cause = "waits for" if name == "blocked" else WAITING[name][1]
            assert cause in json.dumps(explained["why"]).lower().replace("_", " "), (name, explained)
        if transport == "stdio":
            assert (await ask("check_installation"))["problems"] is not None
        for tool, arguments in (("list_datasets", {}), ("list_schedules", {}), ("list_workers_and_queues", {})):
            assert "error" not in await ask(tool, **arguments)
        assert "error" in await ask("query_datasets", sql="DROP TABLE tasks")
        assert "remedy" in await ask("explain_failure", job_id="1")
        assert "not an id" in (await ask("explain_task", task_id="x"))["error"]
        assert not any(CANARY in answer for answer in ask.answers)
        assert any("mail.example.org" in answer for answer in ask.answers)


async def list_audit() -> list[tuple[str, str, str]]:
    connection = await connect(get_settings().postgres)
    try:
        entries = await connection.fetch("SELECT action, target, detail FROM audit_log ORDER BY id")
    finally:
        await connection.close()
    return [(entry["action"], entry["target"], entry["detail"]) for entry in entries]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_change_needs_permission_a_plan_and_its_token(assistant, monkeypatch, tmp_path, transport: str) -> None:
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    get_settings.cache_clear()
    async with OrchContext():
        job = await create_job("parse", create_task(parse, {}, retries=0))
        await asyncio.to_thread(run_job_test, job)

    def open_client(max_changes: int = 0, scope: str = "writer"):
        variables = {"AAICLICK_MCP_CHANGES_PER_HOUR": str(max_changes)}
        log = tmp_path / f"{max_changes}-{scope}.log"
        return assistant(max_changes) if transport == "stdio" else connect_over_http(log, scope, **variables)

    refused = [open_client()] + ([open_client(1, "reader")] if transport == "http" else [])
    for opened in refused:
        async with opened as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "explain_failure" in names
            assert not names & WRITE_NAMES
    async with open_client(2) as client:
        ask = Assistant(client)
        planned = await ask("retry_job", job_id=str(job.id))
        assert "Retry 1 failed tasks" in planned["plan"]
        assert "does not belong" in (await ask("cancel_job", job_id=str(job.id), confirm=planned["confirm"]))["error"]
        planned = await ask("retry_job", job_id=str(job.id))
        done = await ask("retry_job", job_id=str(job.id), confirm=planned["confirm"])
        assert (len(done["result"]["ids"]), done["changes_left"]) == (1, 1)
        planned = await ask("cancel_job", job_id=str(job.id))
        again = {"job_id": str(job.id), "confirm": planned["confirm"]}
        assert "token was used" in [await ask("cancel_job", **again), await ask("cancel_job", **again)][1]["error"]
        planned = await ask("cancel_job", job_id=str(job.id))
        exhausted = (await ask("cancel_job", job_id=str(job.id), confirm=planned["confirm"]))["error"]
        assert "used up" in exhausted or "2 times within an hour" in exhausted
    entries = await list_audit()
    assert [entry[:2] for entry in entries if entry[0] != "mcp.call"] == [
        ("job.retry", str(job.id)),
        ("job.cancel", str(job.id)),
    ]
    calls = [entry for entry in entries if entry[0] == "mcp.call"]
    assert len(calls) == (ask.calls if transport == "http" else 0)
    assert not any(planned["confirm"] in detail for _, _, detail in calls)
    assert all(str(job.id) in detail for _, _, detail in calls)


async def test_token_of_a_plan_is_bound_to_the_text_of_the_dag(assistant) -> None:
    """The plan of a new job does not show its configuration."""
    text = (
        "name: d\njobs:\n  - {name: a, activation: source, operator: http_fetch, source: {kind: manual},"
        " config: {url: 'https://example.com/'}, outputs: [o]}\n"
    )
    async with assistant(1) as client:
        ask = Assistant(client)
        planned = await ask("deploy_dag", dag_yaml=text)
        other = text.replace("example.com", "example.org")
        assert (await ask("deploy_dag", dag_yaml=other))["plan"] != planned["plan"]
        refused = await ask("deploy_dag", dag_yaml=other, confirm=planned["confirm"])
        assert "does not belong" in refused["error"]
        assert "done" in await ask("deploy_dag", dag_yaml=text, confirm=planned["confirm"])


async def test_route_needs_a_key_and_answers_json_rpc_only(aaiclick_env, tmp_path) -> None:
    async with connect_over_http(tmp_path / "server.log") as client:
        ask = Assistant(client)
        answers = [ask(tool) for tool in ("list_failures", "list_datasets", "list_schedules", "list_failures")]
        assert all("error" not in answer for answer in await asyncio.gather(*answers))
        url = re.search(r"http://\S+:\d+", (tmp_path / "server.log").read_text()).group() + "/mcp"
        async with httpx.AsyncClient() as anonymous:
            assert (await anonymous.post(url, json={})).status_code == 401
            assert (await anonymous.get(url)).status_code == 405


async def test_unexpected_error_of_a_tool_is_not_answered(aaiclick_env, tmp_path) -> None:
    async with connect_over_http(tmp_path / "server.log") as client:
        ask = Assistant(client)
        await ask("list_failures")
        connection = await connect(get_settings().postgres)
        try:
            await connection.execute("ALTER TABLE jobs RENAME COLUMN name TO label")
            answer = await ask("list_failures")
        finally:
            await connection.execute("ALTER TABLE jobs RENAME COLUMN label TO name")
            await connection.close()
        assert answer == {"error": "Internal server error.", "remedy": ""}


async def test_command_serves_tools_over_standard_streams(aaiclick_env, tmp_path) -> None:
    environment = dict(os.environ) | {"AAICLICK_LOG_DIR": str(tmp_path)}
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "aaiclick", "mcp"], env=environment)
    async with Client(stdio_client(parameters)) as client:
        tools = (await client.list_tools()).tools
        assert all(tool.annotations.read_only_hint for tool in tools)
        assert (await Assistant(client)("list_failures"))["jobs"] == []


def test_long_answers_are_shortened_and_ids_are_text() -> None:
    answer = render({"items": [{"id": 2**60 + n, "text": "x" * 200} for n in range(500)]})
    shown = json.loads(answer)
    assert len(answer.encode()) <= MAX_BYTES
    assert 1 < len(shown["items"]) < 500
    assert shown["items"][0]["id"] == str(2**60)
    assert "left_out" in shown
    assert shorten("a" * 6000 + "the error").endswith("the error")
