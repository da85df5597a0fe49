"""Messages of real workers: nothing is lost and nothing is announced twice when supervisors are killed at commits."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.notification_rules import Channel, Rule, set_channel, set_rule
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.integration.gateways import ONE_REQUEST, postgres_only
from tests.integration.notification_sinks import HttpSink, smtp_server

FAULTS = tuple(
    f"{name}.{moment}" for name in ("route_incidents", "enqueue_notifications") for moment in ("before", "after")
)
FAILING = ("fail", "strange", "mumble")
REPEATS = 20


@postgres_only(ONE_REQUEST)
@pytest.mark.timeout(180)
async def test_killed_supervisors_lose_no_message_and_announce_once(worker_env, tmp_path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    variables = {
        "AAICLICK_FAULTS": ",".join(f"{fault}=kill" for fault in FAULTS), "AAICLICK_FAULT_MARKS": str(marks),
        "AAICLICK_PRIVATE_HOSTS": "127.0.0.1",
    }  # fmt: skip
    db = await connect(worker_env.endpoint)
    async with HttpSink().serve() as sink, smtp_server() as (mailbox, port):
        mail = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "a@example.org", "to": ["b@example.org"]}
        hook = {"url": f"http://127.0.0.1:{sink.port}/"}
        await set_channel(db, Channel(DEFAULT_ORG_ID, "hook", "webhook", hook))
        await set_channel(db, Channel(DEFAULT_ORG_ID, "mail", "email", mail))
        await set_rule(db, DEFAULT_ORG_ID, Rule("all", ("hook", "mail")))
        for function in FAILING:
            await worker_env.enqueue_many(REPEATS, function, max_attempts=1)
        worker = worker_env.start(**variables)
        delivered = "SELECT count(delivered_at) FROM notifications"
        while await db.fetchval(delivered) < 2 * len(FAILING):
            if worker.process.poll() is not None:
                worker = worker_env.start(**variables)
            await asyncio.sleep(0.05)
        worker.stop()
    assert len(list(marks.iterdir())) == len(FAULTS)  # every fault was reached
    rows = await db.fetch("SELECT task_type, count FROM incidents WHERE closed_at IS NULL")
    counts = {row["task_type"]: row["count"] for row in rows}
    assert counts == {f"users_tasks.{function}": REPEATS for function in FAILING}
    bodies = [json.loads(request.body) for request in sink.requests]
    opened = Counter(incident["title"] for body in bodies for incident in body["incidents"])
    assert opened == Counter(f"Task users_tasks.{function} failed" for function in FAILING)
    assert sorted(mail["Subject"] for _, mail in mailbox.mails) == sorted(
        f"[error] Task users_tasks.{function} failed" for function in FAILING
    )
    assert await check_invariants(db) == []
    await db.close()
