"""Messages about incidents: planned by rules, each event once per channel, enqueued in bounded numbers."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from aaiclick.errors import NotFoundError, RequestError
from aaiclick.orchestration.loops import notifications as loop
from aaiclick.store.engine import incidents, notification_deliveries
from aaiclick.store.engine import notification_rules as rules
from aaiclick.store.engine.incidents import Occurrence, make_fingerprint, record_incidents
from aaiclick.store.engine.notification_rules import Channel, Rule
from aaiclick.store.enums import DEFAULT_ORG_ID, NOTIFICATION_QUEUE
from tests.integration.engine.conftest import Engine


async def add_channel(engine: Engine, name: str = "ops", **fields: Any) -> None:
    await rules.set_channel(engine.db, Channel(DEFAULT_ORG_ID, name, "webhook", {"url": "http://x.test"}, **fields))


async def add_rule(engine: Engine, *channels: str, **fields: Any) -> None:
    await rules.set_rule(engine.db, DEFAULT_ORG_ID, Rule("all", channels or ("ops",), **fields))


async def open_incident(engine: Engine, name: str = "x", severity: Any = "error") -> None:
    key = make_fingerprint(name)
    await record_incidents(engine.db, [Occurrence(DEFAULT_ORG_ID, "deadline_missed", key, severity, f"Late {name}")])


async def run_loop(engine: Engine, **later: float) -> dict[str, int]:
    return await loop.run_once(engine.db, now=await engine.now() + timedelta(**later))


async def planned(engine: Engine) -> list[tuple[str, str]]:
    rows = await engine.db.fetch("SELECT channel, event FROM notifications ORDER BY id")
    return [(row["channel"], row["event"]) for row in rows]


async def messages(engine: Engine) -> list[tuple[str, int]]:
    """Channel and number of notifications of each enqueued message."""
    rows = await engine.db.fetch("SELECT kwargs FROM tasks WHERE queue = $1 ORDER BY id", NOTIFICATION_QUEUE)
    tasks = [json.loads(row["kwargs"]) for row in rows]
    return [(task["channel"], len(task["notifications"])) for task in tasks]


async def test_incident_is_announced_and_its_end_too(engine: Engine) -> None:
    await add_channel(engine)
    await add_channel(engine, "unused")
    await add_rule(engine)
    await open_incident(engine)
    assert await run_loop(engine) == {"incidents": 1, "messages": 1}
    assert await run_loop(engine) == {"incidents": 0, "messages": 0}
    await incidents.close_incident_of(engine.db, DEFAULT_ORG_ID, "deadline_missed", make_fingerprint("x"))
    assert await run_loop(engine) == {"incidents": 1, "messages": 1}
    assert await planned(engine) == [("ops", "opened"), ("ops", "closed")]
    assert await run_loop(engine) == {"incidents": 0, "messages": 0}


async def test_incident_that_closed_before_it_was_routed_is_announced(engine: Engine) -> None:
    await add_channel(engine)
    await add_rule(engine)
    await open_incident(engine)
    await incidents.close_incident_of(engine.db, DEFAULT_ORG_ID, "deadline_missed", make_fingerprint("x"))
    await run_loop(engine)
    assert await planned(engine) == [("ops", "opened"), ("ops", "closed")]


async def test_incident_without_a_matching_rule_is_not_announced(engine: Engine) -> None:
    await add_channel(engine)
    await add_rule(engine, min_severity="critical")
    await open_incident(engine)
    assert await run_loop(engine) == {"incidents": 1, "messages": 0}


async def test_concurrent_leaders_announce_an_incident_once(engine: Engine, second: Engine) -> None:
    await add_channel(engine)
    await add_rule(engine)
    for n in range(5):
        await open_incident(engine, str(n))
    await asyncio.gather(*(loop.run_once(session.db) for session in (engine, second)))
    await asyncio.gather(*(loop.run_once(session.db) for session in (engine, second)))
    assert await planned(engine) == [("ops", "opened")] * 5
    assert await messages(engine) == [("ops", 1)] * 5


async def test_event_of_an_incident_is_planned_once_per_channel(engine: Engine) -> None:
    """The unique index refuses a second announcement, whatever the code does."""
    await add_channel(engine)
    await add_rule(engine)
    await open_incident(engine)
    await run_loop(engine)
    await engine.db.execute("UPDATE incidents SET opened_routed_at = NULL")
    assert await run_loop(engine) == {"incidents": 1, "messages": 0}
    assert await planned(engine) == [("ops", "opened")]


async def test_many_incidents_are_a_bounded_number_of_messages(engine: Engine) -> None:
    await add_channel(engine)
    await add_rule(engine)
    for n in range(300):
        await open_incident(engine, str(n))
    await run_loop(engine)
    limit = notification_deliveries.MAX_MESSAGES
    assert await messages(engine) == [("ops", 1)] * (limit - 1) + [("ops", 300 - limit + 1)]
    await open_incident(engine, "later")
    await run_loop(engine, seconds=30)
    assert len(await messages(engine)) == limit
    await run_loop(engine, seconds=90)
    assert (await messages(engine))[limit:] == [("ops", 1)]


async def test_digest_has_the_incidents_of_its_interval(engine: Engine) -> None:
    await add_channel(engine, digest_seconds=3600.0)
    await add_rule(engine)
    for name in ("x", "y"):
        await open_incident(engine, name)
    await open_incident(engine, "z", "critical")
    assert (await run_loop(engine))["messages"] == 1  # the critical one
    assert (await run_loop(engine, hours=1))["messages"] == 1
    assert await messages(engine) == [("ops", 1), ("ops", 2)]


async def test_unacknowledged_incident_is_escalated_once(engine: Engine) -> None:
    for name in ("ops", "boss"):
        await add_channel(engine, name)
    await add_rule(engine, escalate_after_seconds=600.0, escalate_to=("boss",))
    await open_incident(engine)
    await open_incident(engine, "acknowledged")
    await run_loop(engine)
    row = await engine.db.fetchrow("SELECT id FROM incidents ORDER BY id DESC LIMIT 1")
    await incidents.acknowledge_incident(engine.db, DEFAULT_ORG_ID, row["id"], "ada")
    assert (await run_loop(engine, seconds=590))["incidents"] == 0
    assert (await run_loop(engine, seconds=601))["incidents"] == 1
    assert (await run_loop(engine, seconds=700))["incidents"] == 0
    assert (await planned(engine))[2:] == [("boss", "escalated")]
    assert await engine.db.fetchval("SELECT count(escalated_at) FROM incidents") == 1


async def test_snoozed_incident_is_announced_again_if_it_is_still_open(engine: Engine) -> None:
    await add_channel(engine)
    await add_channel(engine, "boss")
    await add_rule(engine, escalate_after_seconds=600.0, escalate_to=("boss",))
    await open_incident(engine)
    await run_loop(engine)
    (row,) = await engine.db.fetch("SELECT id FROM incidents")
    await incidents.snooze_incident(engine.db, DEFAULT_ORG_ID, row["id"], 7200)
    assert (await run_loop(engine, seconds=3600))["incidents"] == 0  # not escalated either
    assert (await run_loop(engine, seconds=7300))["incidents"] == 1
    assert (await planned(engine))[1:] == [("ops", "reminder")]
    assert (await run_loop(engine, seconds=7400))["incidents"] == 1
    assert (await planned(engine))[2:] == [("boss", "escalated")]


async def test_channel_of_a_rule_cannot_be_deleted(engine: Engine) -> None:
    await add_channel(engine)
    await add_rule(engine)
    with pytest.raises(RequestError, match="The rule 'all' sends to the channel 'ops'"):
        await rules.delete_channel(engine.db, DEFAULT_ORG_ID, "ops")
    with pytest.raises(NotFoundError):
        await add_rule(engine, "missing")
    await rules.delete_rule(engine.db, DEFAULT_ORG_ID, "all")
    await rules.delete_channel(engine.db, DEFAULT_ORG_ID, "ops")
    with pytest.raises(NotFoundError):
        await rules.delete_channel(engine.db, DEFAULT_ORG_ID, "ops")


async def test_channel_incident_closes_after_a_delivery(engine: Engine) -> None:
    await add_channel(engine)
    await add_rule(engine)
    await open_incident(engine)
    await run_loop(engine)
    for _ in range(incidents.CHANNEL_FAILURES):
        engine.shift += timedelta(hours=9)
        await engine.fail(*await engine.claim(queues=[NOTIFICATION_QUEUE]))
    open_rules = "SELECT rule FROM incidents WHERE closed_at IS NULL ORDER BY id"
    assert [row["rule"] for row in await engine.db.fetch(open_rules)] == ["deadline_missed", "channel_failing"]
    engine.shift += timedelta(hours=9)
    await engine.complete(*await engine.claim(queues=[NOTIFICATION_QUEUE]))
    await run_loop(engine)
    assert [row["rule"] for row in await engine.db.fetch(open_rules)] == ["deadline_missed"]
    assert await engine.db.fetchval("SELECT count(delivered_at) FROM notifications") == 1
