"""MCP tools, over HTTP and of a local user, answer nothing about datasets that the roles of the caller hide."""

from __future__ import annotations

import asyncio
import os
from functools import partial

from mcp import Client

from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.mcp.read_tools import READ_TOOLS
from aaiclick.mcp.server import OperationsThread, build_server
from aaiclick.server.task_logs import log_path
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy import users
from aaiclick.store.tenancy.api_keys import create_key
from tests.integration.catalog.conftest import order
from tests.integration.catalog.test_datasets import CANARIES, VAULT
from tests.integration.server.conftest import start_server
from tests.mcp_assistant import Assistant, open_http_client

OBJECT_CANARIES = {"canary_object", "2026-01-17"}
"""Names of a table and of a partition: no tool answers them, not even to an admin."""


async def test_hidden_dataset_is_in_no_answer_of_any_tool(shop, tmp_path) -> None:
    await shop.deploy(VAULT)
    job_id = await shop.fire({"rows": [order(1, 17, 10)]}, dag="vault")
    assert await shop.finish(job_id) == "FAILED"
    tasks = await shop.db.fetch("SELECT id, status::text, error_fingerprint FROM tasks ORDER BY id")
    [dead] = [row for row in tasks if row["status"] == "DEAD_LETTER"]
    log_path(get_settings(), dead["id"]).write_text("canary_log\n")
    server = await asyncio.to_thread(start_server, dict(os.environ), tmp_path / "server.log")
    calls = [
        ("list_failures", {}), ("explain_failure", {"job_id": str(job_id)}), ("list_dead_letters", {}),
        ("list_dead_letters", {"fingerprint": dead["error_fingerprint"]}), ("list_tasks", {"job_id": str(job_id)}),
        *((tool, {"task_id": str(row["id"])}) for row in tasks for tool in ("explain_task", "read_log")),
        ("list_datasets", {}), ("describe_dataset", {"name": "canary_published"}),
        *(("get_lineage", {"name": "canary_published", "direction": direction}) for direction in ("up", "down")),
        ("query_datasets", {"sql": "SELECT * FROM canary_published"}), ("list_workers_and_queues", {}),
        ("list_schedules", {}), ("plan_deploy", {"dag_yaml": "name: vault\njobs: []\n"}),
    ]  # fmt: skip
    assert {tool for tool, _ in calls} == {tool.__name__ for tool in READ_TOOLS}
    answers = {}
    try:
        for role in ("admin", "reader"):
            key = await create_key(shop.db, org_id=DEFAULT_ORG_ID, name=role, scopes=[role])
            async with open_http_client(server.url, key.text) as client:
                ask = Assistant(client)
                for tool, arguments in calls:
                    await ask(tool, **arguments)
            answers[role] = " ".join(ask.answers).replace("'canary_published'", "?")  # echoed from the question
    finally:
        await asyncio.to_thread(server.stop)
    await users.create_user(shop.db, DEFAULT_ORG_ID, external_id="nobody@example.org", role="reader")
    thread = OperationsThread(partial(open_operations, reads_as="nobody@example.org"), max_changes=5)
    try:
        async with Client(build_server(thread, changes=True)) as client:
            ask = Assistant(client)
            writes = [
                ("retry_job", {"job_id": str(job_id)}), ("cancel_job", {"job_id": str(job_id)}),
                ("clear_task", {"task_id": str(dead["id"])}),
                ("redrive_dead_letters", {"fingerprint": dead["error_fingerprint"]}),
            ]  # fmt: skip
            for tool, arguments in [*calls, *writes]:
                await ask(tool, **arguments)
        answers["local user"] = " ".join(ask.answers).replace("'canary_published'", "?")
    finally:
        thread.close()
    assert {canary for canary in CANARIES if canary not in answers["admin"]} <= OBJECT_CANARIES
    for caller in ("reader", "local user"):
        assert [canary for canary in CANARIES if canary in answers[caller]] == [], caller
