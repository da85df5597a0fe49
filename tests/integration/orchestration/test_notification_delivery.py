"""Deliveries to a real HTTP server and a real SMTP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword

from aaiclick.catalog.webhooks import is_signed
from aaiclick.orchestration.loops import incidents as incident_loop
from aaiclick.orchestration.loops import notifications as loop
from aaiclick.orchestration.loops.notification_sender import NotificationSender
from aaiclick.settings import get_logs_dir, get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import notification_rules as rules
from aaiclick.store.engine import queue
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.leases_and_outcomes import Failure
from aaiclick.store.engine.notification_rules import Channel, Rule
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID, DEFAULT_ORG_SLUG, NOTIFICATION_QUEUE
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions
from aaiclick.store.tenancy import secrets
from aaiclick.store.tenancy.orgs import create_org, get_org
from tests.integration.notification_sinks import HttpSink, smtp_server

URL_SECRET, KEY_SECRET = "token-in-the-path-of-the-url", "signing-key-of-the-webhook"


@pytest.fixture
async def sink() -> AsyncIterator[HttpSink]:
    async with HttpSink().serve() as sink:
        yield sink


@pytest.fixture
def db_environment(aaiclick_env, monkeypatch):
    monkeypatch.setenv("AAICLICK_PRIVATE_HOSTS", "127.0.0.1")
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
async def db(db_environment, aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


async def set_secret(db, name: str, value: str, host: str | None = None) -> dict[str, str]:
    org = await get_org(db, DEFAULT_ORG_ID)
    await secrets.set_secret(db, org, name, value, host, await secrets.load_keys_for_writing(db))
    return {"secret": name}


async def add_channel(db, channel_type: Any, config: dict[str, Any], name: str = "ops", **fields: Any) -> None:
    await rules.set_channel(db, Channel(DEFAULT_ORG_ID, name, channel_type, config, **fields))
    names = {rule.name: rule for rule in await rules.list_rules(db, DEFAULT_ORG_ID)}
    channels = (*(names["all"].channels if "all" in names else ()), name)
    await rules.set_rule(db, DEFAULT_ORG_ID, Rule("all", tuple(dict.fromkeys(channels))))


async def fail_item(db, name: str = "mail", error: str = "Traceback …\nValueError: no such column") -> int:
    task_id = get_snowflake_id()
    await enqueue_tasks(db, [NewTask(task_id, name, "m.m", options=TaskOptions(max_attempts=1))])
    claims = await queue.claim(db, worker_id=1, limit=100, queues=["default"], lease_seconds=60)
    failures = [Failure(claim.lease, error, f"ValueError:{name}") for claim in claims]
    await queue.acknowledge(db, worker_id=1, failures=failures)
    return task_id


async def send(db, sender: NotificationSender | None = None, **later: float) -> dict[str, int]:
    """One pass of the leader and of the sender, until its deliveries have ended."""
    now = await db.fetchval("SELECT now()") + timedelta(**later)
    sender = sender or NotificationSender()
    await incident_loop.run_once(db, now=now)
    await loop.run_once(db, now=now)
    started = (await sender.run_once(db, now=now))["started"]
    counts = await sender.finish(db, now=now)
    await loop.run_once(db, now=now)
    return {**counts, "started": started}


async def test_webhook_is_signed_and_has_cause_log_link_and_command(db, sink: HttpSink) -> None:
    key = await set_secret(db, "hook", KEY_SECRET)
    await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{sink.port}/in", "secret": key})
    task_id = await fail_item(db)
    log = get_logs_dir(get_settings()) / f"{task_id}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("reading 12 files\n")
    assert await send(db) == {"delivered": 1, "failed": 0, "started": 1}
    (request,) = sink.requests
    signature, delivery = request.headers["aaiclick-signature"], request.headers["aaiclick-delivery"]
    moment = int(signature.split(",")[0][2:])
    assert is_signed(KEY_SECRET, request.body, signature, moment, delivery)
    assert not is_signed("another key", request.body, signature, moment, delivery)
    body = sink.json()
    (incident,) = body["incidents"]
    assert (body["delivery"], body["org"]) == (delivery, DEFAULT_ORG_SLUG)
    assert (incident["event"], incident["title"], incident["severity"]) == ("opened", "Task mail failed", "error")
    assert incident["cause"].endswith("ValueError: no such column")
    assert incident["log"] == "reading 12 files"
    assert incident["link"].endswith(f"/incidents/{incident['incident_id']}")
    assert incident["command"] == 'aaiclick dlq redrive --fingerprint "ValueError:mail"'
    assert incident["task_id"] == str(task_id)


async def test_cause_is_hidden_from_a_channel_without_the_role(db, sink: HttpSink) -> None:
    await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{sink.port}/"})
    await fail_item(db, error="ValueError: secret row 7")
    await db.execute("UPDATE incidents SET dag_name = 'shop', task_id = 7")  # its task is gone
    await send(db)
    (incident,) = sink.json()["incidents"]
    assert "secret row" not in sink.requests[0].body.decode()
    assert "ValueError" not in sink.requests[0].body.decode()
    assert incident["cause"].startswith("The cause is hidden")


async def test_answer_that_repeats_a_message_for_a_role_is_not_shown_to_all(db, sink: HttpSink) -> None:
    sink.status, sink.answer = 500, b"cannot store: row 7 of payroll"
    await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{sink.port}/"}, roles=("finance",))
    await fail_item(db)
    assert (await send(db))["failed"] == 1
    error = await db.fetchval("SELECT error FROM tasks WHERE queue = 'runtime:notifications'")
    assert "answered with status 500." in error
    assert "payroll" not in error


async def test_slack_and_teams_get_their_own_formats(db, sink: HttpSink) -> None:
    for name in ("slack", "teams"):
        url = await set_secret(db, name, f"http://127.0.0.1:{sink.port}/{URL_SECRET}/{name}")
        await add_channel(db, name, {"url": url}, name)
    await fail_item(db, "a<b")
    assert (await send(db))["delivered"] == 2
    slack, teams = (json.loads(r.body) for r in sorted(sink.requests, key=lambda r: r.path))
    assert slack["text"] == "Task a&lt;b failed"
    assert "aaiclick dlq redrive" in slack["blocks"][0]["text"]["text"]
    card = teams["attachments"][0]["content"]
    assert (card["type"], card["body"][0]["text"]) == ("AdaptiveCard", "Task a<b failed")
    assert card["actions"][0]["type"] == "Action.OpenUrl"


async def test_pagerduty_resolves_the_event_that_it_triggered(db, sink: HttpSink) -> None:
    key = await set_secret(db, "pager", "R0UT1NGKEY")
    await add_channel(db, "pagerduty", {"routing_key": key, "url": f"http://127.0.0.1:{sink.port}/v2/enqueue"})
    await fail_item(db)
    await send(db)
    await db.execute("DELETE FROM tasks WHERE status = 'DEAD_LETTER'")
    await send(db, hours=1)  # closes it
    await send(db, hours=1)
    trigger, resolve = (json.loads(request.body) for request in sink.requests)
    assert (trigger["event_action"], resolve["event_action"]) == ("trigger", "resolve")
    assert trigger["dedup_key"] == resolve["dedup_key"]
    assert trigger["routing_key"] == "R0UT1NGKEY"
    assert (trigger["payload"]["severity"], trigger["payload"]["summary"]) == ("error", "Task mail failed")


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_email_reaches_all_recipients_after_a_login(db) -> None:
    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword) -> AuthResult:
        return AuthResult(success=(data.login, data.password) == (b"robot", b"mail-password"))

    options = {"authenticator": authenticate, "auth_require_tls": False, "auth_required": True}
    async with smtp_server(**options) as (handler, port):
        config = {
            "host": "127.0.0.1", "port": port, "tls": "none", "username": "robot",
            "password": await set_secret(db, "smtp", "mail-password"), "sender": "aaiclick@example.org",
            "to": ["ada@example.org", "bob@example.org"],
        }  # fmt: skip
        await add_channel(db, "email", config)
        await fail_item(db)
        assert (await send(db))["delivered"] == 1
    ((recipients, mail),) = handler.mails
    assert recipients == ["ada@example.org", "bob@example.org"]
    assert mail["Subject"] == "[error] Task mail failed"
    text = mail.get_payload(decode=True).decode()
    assert "ValueError: no such column" in text
    assert "Fix: aaiclick dlq redrive" in text
    assert mail["Message-ID"].endswith("@aaiclick>")


async def test_password_that_is_bound_to_a_host_is_not_sent_to_a_mail_server(db) -> None:
    async with smtp_server() as (handler, port):
        password = await set_secret(db, "bound", "bound-password", "api.example.com")
        config = {
            "host": "127.0.0.1", "port": port, "tls": "none", "username": "robot", "password": password,
            "sender": "aaiclick@example.org", "to": ["ada@example.org"],
        }  # fmt: skip
        await add_channel(db, "email", config)
        await fail_item(db)
        assert (await send(db))["failed"] == 1
    error = await db.fetchval("SELECT error FROM tasks WHERE queue = 'runtime:notifications'")
    assert "The secret 'bound' is bound to https://api.example.com" in error
    assert handler.mails == []


async def test_message_is_kept_until_a_channel_works_again(db, sink: HttpSink) -> None:
    """A channel that is down loses nothing, opens an incident of its own, and does not delay another channel."""
    url = await set_secret(db, "url", f"http://127.0.0.1:{sink.port}/{URL_SECRET}")
    await add_channel(db, "webhook", {"url": url})
    await add_channel(
        db, "email", {"host": "127.0.0.1", "port": 9, "tls": "none", "sender": "a@b.c", "to": ["d@e.f"]}, "mail"
    )
    sink.status = 503
    await fail_item(db)
    for attempt in range(3):
        assert await send(db, hours=attempt) == {"delivered": 0, "failed": 2, "started": 2}
    rows = await db.fetch("SELECT task_type, cause FROM incidents WHERE rule = 'channel_failing' ORDER BY task_type")
    assert [row["task_type"] for row in rows] == ["mail", "ops"]
    assert "answered with status 503" in rows[1]["cause"]
    assert URL_SECRET not in rows[1]["cause"]
    sink.status = 200
    before = len(sink.requests)
    await send(db, hours=9)
    titles = {json.loads(r.body)["incidents"][0]["title"] for r in sink.requests[before:]}
    assert titles == {"Task mail failed", "Notifications to the channel mail fail"}
    open_channels = "SELECT task_type FROM incidents WHERE rule = 'channel_failing' AND closed_at IS NULL"
    assert [row["task_type"] for row in await db.fetch(open_channels)] == ["mail"]
    deliveries = {json.loads(r.body)["delivery"] for r in sink.requests if b"Task mail failed" in r.body}
    assert len(deliveries) == 1  # repeated attempts have the same id


async def test_slow_channel_does_not_delay_another(db, sink: HttpSink) -> None:
    async with HttpSink().serve() as slow:
        slow.delay.clear()
        await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{slow.port}/"}, "slow")
        await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{sink.port}/"}, "fast")
        sender = NotificationSender()
        for n in range(5):
            await fail_item(db, f"t{n}")
        await loop.run_once(db)
        for _ in range(200):
            await sender.run_once(db)
            if len(sink.requests) == 5:
                break
            await asyncio.sleep(0.01)
        assert (len(sink.requests), slow.requests) == (5, [])
        leased = "SELECT count(*) FROM tasks WHERE concurrency_key = 'notification:slow' AND lease_token IS NOT NULL"
        assert await db.fetchval(leased) == 2
        slow.delay.set()
        await sender.finish(db)
    assert len(slow.requests) == 2


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.7/",
        "http://[::1]/",
        "http://localhost:9/",
        "http://[::ffff:7f00:1]/",
        "http://[fec0::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
    ],
)
async def test_private_address_is_refused(db, monkeypatch, url: str) -> None:
    monkeypatch.setenv("AAICLICK_PRIVATE_HOSTS", "")
    get_settings.cache_clear()
    await add_channel(db, "webhook", {"url": url})
    await fail_item(db)
    assert (await send(db))["failed"] == 1
    assert "is not" in await db.fetchval("SELECT error FROM tasks WHERE queue = 'runtime:notifications'")


async def test_redirect_of_a_channel_is_not_followed(db, sink: HttpSink) -> None:
    async with HttpSink().serve() as redirecting:
        redirecting.status = 307
        redirecting.location = f"http://127.0.0.1:{sink.port}/"
        await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{redirecting.port}/"})
        await fail_item(db)
        assert (await send(db))["failed"] == 1
    assert (len(redirecting.requests), sink.requests) == (1, [])


async def test_message_to_a_deleted_channel_is_dropped(db, sink: HttpSink) -> None:
    await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{sink.port}/"})
    await fail_item(db)
    await loop.run_once(db)
    await db.execute("DELETE FROM notification_channels")
    assert await send(db) == {"delivered": 1, "failed": 0, "started": 1}
    assert sink.requests == []


async def test_answer_with_a_nul_character_does_not_stop_the_sender(db, sink: HttpSink) -> None:
    sink.status, sink.answer = 500, b"broken \x00 answer"
    await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{sink.port}/"})
    await fail_item(db)
    sender = NotificationSender()
    assert (await send(db, sender))["failed"] == 1
    assert "broken \\x00 answer" in await db.fetchval("SELECT error FROM tasks WHERE queue = 'runtime:notifications'")
    sink.status = 204
    assert (await send(db, sender, minutes=5))["delivered"] == 1


async def enqueue_forged_delivery(db, org_id: UUID, kwargs: dict[str, Any]) -> int:
    """A task in the queue of deliveries that no notification has."""
    options = TaskOptions(queue=NOTIFICATION_QUEUE, max_attempts=1, priority=10)
    task = NewTask(get_snowflake_id(), "notify", None, json.dumps(kwargs), options=options)
    await enqueue_tasks(db, [task], org_id)
    return task.id


async def test_forged_delivery_sends_no_incident_of_another_org(db, sink: HttpSink) -> None:
    await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{sink.port}/ours"})
    await fail_item(db)
    other = await create_org(db, name="other", slug="other")
    await rules.set_channel(db, Channel(other.id, "ops", "webhook", {"url": f"http://127.0.0.1:{sink.port}/other"}))
    await incident_loop.run_once(db)
    await loop.run_once(db)
    ids = [str(row["id"]) for row in await db.fetch("SELECT id FROM notifications")]
    assert ids
    await enqueue_forged_delivery(db, other.id, {"channel": "ops", "notifications": ids})
    await send(db)
    assert [request.path for request in sink.requests] == ["/ours"]


@pytest.mark.parametrize(
    "kwargs", [{}, {"channel": 7, "notifications": None}, {"channel": "ops", "notifications": ["9" * 30]}]
)
async def test_malformed_delivery_fails_and_others_are_sent(db, sink: HttpSink, kwargs: dict[str, Any]) -> None:
    await add_channel(db, "webhook", {"url": f"http://127.0.0.1:{sink.port}/"})
    await fail_item(db)
    forged = await enqueue_forged_delivery(db, DEFAULT_ORG_ID, kwargs)
    assert await send(db) == {"delivered": 1, "failed": 1, "started": 2}
    assert await db.fetchval("SELECT status FROM tasks WHERE id = $1", forged) == "DEAD_LETTER"


async def test_host_that_is_no_valid_name_is_a_failed_delivery(db) -> None:
    await add_channel(db, "webhook", {"url": f"http://{'x' * 64}.example/"})
    await fail_item(db)
    assert (await send(db))["failed"] == 1
    assert "is not a valid name" in await db.fetchval("SELECT error FROM tasks WHERE queue = 'runtime:notifications'")
