"""Incidents: opened in the transaction that causes them, counted without locks, closed on recovery."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from aaiclick.api.incidents import fix_command
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.orchestration.loops import incidents as loop
from aaiclick.store.engine import incidents, queue, user_actions
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.incidents import Occurrence, make_fingerprint, record_incidents, to_occurrence
from aaiclick.store.engine.leases_and_outcomes import Failure
from aaiclick.store.engine.maintenance import delete_old_history, end_overdue_jobs
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID, NOTIFICATION_QUEUE
from aaiclick.store.task_options import TaskOptions
from tests.integration.engine.conftest import Engine

OPEN = "SELECT * FROM incidents WHERE closed_at IS NULL ORDER BY id"


async def open_incidents(engine: Engine) -> list[Any]:
    return await engine.db.fetch(OPEN)


async def add_item(engine: Engine, name: str, **options: Any) -> None:
    task = NewTask(engine.id(name), name, f"m.{name}", options=TaskOptions(max_attempts=1, **options))
    await enqueue_tasks(engine.db, [task])


async def run_loop(engine: Engine, *, hours: float = 0) -> dict[str, int]:
    loop._last_checked = 0
    return await loop.run_once(engine.db, now=await engine.now() + timedelta(hours=hours))


async def test_final_failure_opens_one_incident_of_the_job(engine: Engine) -> None:
    await engine.submit("a b", max_attempts=2)
    await engine.fail(*await engine.claim())
    assert await open_incidents(engine) == []  # the tasks are retried
    await engine.fail(*await engine.claim())
    first, second = await open_incidents(engine)
    assert (first["rule"], first["job_name"], first["task_type"], first["severity"]) == (
        "job_failed", "job", "a", "error",
    )  # fmt: skip
    assert first["title"] == "Job job: task a failed"
    assert (first["cause"], first["count"], first["job_id"]) == ("it broke", 1, engine.id("job"))
    assert second["task_type"] == "b"


async def test_incident_has_the_tags_of_its_job(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1)
    await engine.db.execute("""UPDATE jobs SET tags = '{"team": "shop", "owner": "ada"}'""")
    await engine.fail(*await engine.claim())
    assert [row["tags"] for row in await open_incidents(engine)] == [["owner=ada", "team=shop"]]


async def test_item_and_optional_task_open_incidents_of_tasks(engine: Engine) -> None:
    await add_item(engine, "mail")
    await engine.submit("a", max_attempts=1, critical=False)
    await engine.fail(*await engine.claim())
    assert sorted(row["title"] for row in await open_incidents(engine)) == [
        "Task a failed in job job",
        "Task mail failed",
    ]


async def test_failures_of_one_fingerprint_are_counted_in_one_incident(engine: Engine, second: Engine) -> None:
    for n in range(3):
        await engine.submit("a", job="nightly", max_attempts=1)
        await (engine if n % 2 else second).fail(*await (engine if n % 2 else second).claim())
        engine.ids.clear()
    (row,) = await open_incidents(engine)
    assert (row["count"], await engine.db.fetchval("SELECT sum(count) FROM incident_occurrences")) == (1, 2)
    assert (await run_loop(engine))["occurrences"] == 2
    (row,) = await open_incidents(engine)
    assert row["count"] == 3
    assert await engine.db.fetchval("SELECT max(id) FROM jobs") == row["job_id"]
    assert (await run_loop(engine))["occurrences"] == 0


async def test_cause_of_an_incident_is_that_of_the_task_that_it_names(engine: Engine) -> None:
    """The visibility of the cause is that of the task: one with the same fingerprint must not show that of another."""
    for error in ("row 7 of payroll", "no row", "retried"):
        engine.ids.clear()
        await add_item(engine, "mail")
        (claim,) = await engine.claim()
        await queue.acknowledge(engine.db, worker_id=1, failures=[Failure(claim.lease, error, "ValueError:same")])
        if error == "retried":
            await engine.db.execute("UPDATE tasks SET error = NULL WHERE id = $1", engine.id("mail"))
        else:
            last = engine.id("mail")
        await run_loop(engine)
        (row,) = await open_incidents(engine)
        expected = "no row" if error == "retried" else error
        assert (row["task_id"], row["cause"]) == (last, expected)
    assert row["count"] == 3


async def test_failures_of_an_open_incident_do_not_wait_for_its_row(engine: Engine, second: Engine) -> None:
    await add_item(engine, "mail")
    await engine.fail(*await engine.claim())
    async with second.db.transaction():
        await second.db.execute("UPDATE incidents SET count = count + 1")
        engine.ids.clear()
        await add_item(engine, "mail")
        async with asyncio.timeout(5):
            await engine.fail(*await engine.claim())
    assert await engine.db.fetchval("SELECT count(*) FROM incident_occurrences") == 1


async def test_incident_is_opened_only_if_the_failure_is_committed(engine: Engine) -> None:
    await add_item(engine, "mail")
    (claim,) = await engine.claim()
    transaction = engine.db.transaction()
    await transaction.start()
    await engine.fail(claim)
    assert len(await open_incidents(engine)) == 1
    await transaction.rollback()
    assert await open_incidents(engine) == []
    assert await engine.status("mail") == "CLAIMED"


async def test_incident_closes_after_a_later_job_of_the_name_completed(engine: Engine) -> None:
    await engine.submit("a", job="nightly", max_attempts=1)
    await engine.fail(*await engine.claim())
    assert (await run_loop(engine, hours=1))["closed"] == 0
    engine.ids.clear()
    await engine.submit("a", job="nightly", max_attempts=1)
    await engine.run()
    assert (await run_loop(engine))["closed"] == 0  # it may fail again at once
    assert (await run_loop(engine, hours=1))["closed"] == 1
    (row,) = await engine.db.fetch("SELECT closed_by FROM incidents")
    assert row["closed_by"] == "recovery"


async def test_incident_closes_after_a_retry_of_its_job_completed(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1)
    await engine.fail(*await engine.claim())
    await user_actions.retry_failed_tasks(engine.db, engine.id("job"))
    await engine.run()
    assert (await run_loop(engine, hours=1))["closed"] == 1


async def test_incident_of_items_closes_with_the_last_dead_letter(engine: Engine) -> None:
    for name in ("x", "y"):
        await enqueue_tasks(engine.db, [NewTask(engine.id(name), "mail", "m.m", options=TaskOptions(max_attempts=1))])
    await engine.fail(*await engine.claim())
    await user_actions.redrive_dead_letters(engine.db, task_ids=[engine.id("x")])
    await engine.run()
    assert (await run_loop(engine, hours=1))["closed"] == 0
    await user_actions.redrive_dead_letters(engine.db)
    await engine.run()
    assert (await run_loop(engine, hours=1))["closed"] == 1


async def test_occurrence_after_the_end_of_an_incident_opens_it_again(engine: Engine) -> None:
    """A transaction finds the incident open, and it is closed before the transaction commits."""
    key = {"org_id": DEFAULT_ORG_ID, "rule": "deadline_missed", "fingerprint": make_fingerprint("x")}
    late = Occurrence(**key, severity="warning", title="Late", job_name="nightly")
    await record_incidents(engine.db, [late])
    await record_incidents(engine.db, [late], now=await engine.now() + timedelta(seconds=5))
    (row,) = await open_incidents(engine)
    assert await incidents.close_incident_of(engine.db, *key.values())
    await incidents.add_occurrences(engine.db)
    (again,) = await open_incidents(engine)
    assert (again["id"] > row["id"], again["title"], again["count"]) == (True, "Late", 1)


async def test_occurrence_before_the_end_of_an_incident_is_only_counted(engine: Engine) -> None:
    await add_item(engine, "mail")
    await engine.fail(*await engine.claim())
    engine.ids.clear()
    await add_item(engine, "mail")
    await engine.fail(*await engine.claim())
    (row,) = await open_incidents(engine)
    await incidents.close_incident(engine.db, DEFAULT_ORG_ID, row["id"], "ada")
    await incidents.add_occurrences(engine.db)
    assert await open_incidents(engine) == []
    assert await engine.db.fetchval("SELECT count FROM incidents") == 2


async def test_timeout_of_a_job_opens_an_incident(engine: Engine) -> None:
    await engine.submit("a", job="nightly")
    await engine.db.execute("UPDATE jobs SET deadline_at = now() - interval '1 s', timeout_seconds = 5")
    assert await end_overdue_jobs(engine.db) == 1
    (row,) = await open_incidents(engine)
    assert (row["rule"], row["title"]) == ("job_failed", "Job nightly: The job did not end within 5 s.")


async def test_cancelled_job_opens_no_incident(engine: Engine) -> None:
    await engine.submit("a b", edges="a>b")
    await user_actions.cancel_job(engine.db, engine.id("job"))
    assert await open_incidents(engine) == []


async def test_failing_deliveries_open_an_incident_of_their_channel(engine: Engine) -> None:
    task = NewTask(
        engine.id("n"), "aaiclick.notification", None,
        options=TaskOptions(max_attempts=9, queue=NOTIFICATION_QUEUE, concurrency_key="ops"),
    )  # fmt: skip
    await enqueue_tasks(engine.db, [task])
    for failures in range(1, 4):
        engine.shift += timedelta(hours=9)
        claims = await engine.claim(queues=[NOTIFICATION_QUEUE])
        await engine.fail(*claims)
        assert len(await open_incidents(engine)) == (failures >= incidents.CHANNEL_FAILURES)
    (row,) = await open_incidents(engine)
    assert (row["rule"], row["task_type"]) == ("channel_failing", "ops")
    assert row["title"] == "Notifications to the channel ops fail"


def failed_task(**fields: Any) -> Any:
    row = {
        "id": 7, "org_id": DEFAULT_ORG_ID, "job_id": 5, "type": "load", "error": "it broke", "queue": "default",
        "error_fingerprint": "ValueError:12", "passed_over": False, "concurrency_key": None, "job_name": "nightly",
        "dag_name": None, "is_always_on": None,
    }  # fmt: skip
    return row | fields


@pytest.mark.parametrize(
    ("fields", "rule", "title"),
    [
        ({}, "job_failed", "Job nightly: task load failed"),
        ({"passed_over": True}, "task_failed", "Task load failed in job nightly"),
        ({"job_id": None, "job_name": None}, "task_failed", "Task load failed"),
        ({"error_fingerprint": "DataTestError:9"}, "data_test_failed", "A data test of load failed in job nightly"),
        ({"is_always_on": True}, "source_dead", "The source load has stopped"),
        ({"queue": NOTIFICATION_QUEUE, "concurrency_key": "ops"}, "channel_failing",
         "Notifications to the channel ops fail"),
    ],
)  # fmt: skip
def test_rule_and_title_follow_from_the_failed_task(fields: Any, rule: str, title: str) -> None:
    occurrence = to_occurrence(failed_task(**fields))
    assert (occurrence.rule, occurrence.title) == (rule, title)


def test_fingerprint_depends_on_job_type_and_error_only() -> None:
    keys = {to_occurrence(failed_task(**fields)).fingerprint for fields in ({}, {"id": 8, "job_id": 6, "error": "x"})}
    different = [{"type": "save"}, {"job_name": "daily"}, {"error_fingerprint": "KeyError:1"}]
    assert len(keys) == 1
    assert len(keys | {to_occurrence(failed_task(**fields)).fingerprint for fields in different}) == 4


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("job_failed", "aaiclick jobs retry 5"),
        ("task_failed", 'aaiclick dlq redrive --fingerprint "E:1"'),
        ("event_unroutable", "aaiclick events retry --all"),
        ("channel_failing", "aaiclick notify test load"),
        ("alert_raised", "aaiclick tasks show 7"),
    ],
)
def test_command_fixes_the_cause(rule: str, command: str) -> None:
    fields = SimpleNamespace(job_id=5, task_id=7, task_type="load", error_fingerprint="E:1")
    assert fix_command(rule, **vars(fields)) == command


async def test_closed_incident_is_not_changed(engine: Engine) -> None:
    await add_item(engine, "mail")
    await engine.fail(*await engine.claim())
    (row,) = await open_incidents(engine)
    await incidents.acknowledge_incident(engine.db, DEFAULT_ORG_ID, row["id"], "ada")
    again = await incidents.acknowledge_incident(engine.db, DEFAULT_ORG_ID, row["id"], "bob")
    assert again["acknowledged_by"] == "ada"
    await incidents.close_incident(engine.db, DEFAULT_ORG_ID, row["id"], "ada")
    with pytest.raises(ConflictError, match="is closed"):
        await incidents.snooze_incident(engine.db, DEFAULT_ORG_ID, row["id"], 60)
    with pytest.raises(NotFoundError):
        await incidents.get_incident(engine.db, DEFAULT_ORG_ID, row["id"] + 1)


async def test_retention_deletes_closed_incidents(engine: Engine) -> None:
    for name in ("a", "b"):
        await add_item(engine, name)
    await engine.fail(*await engine.claim())
    first, second = await open_incidents(engine)
    await incidents.close_incident(engine.db, DEFAULT_ORG_ID, first["id"], "ada")
    await delete_old_history(engine.db, keep_seconds=60, now=await engine.now() + timedelta(hours=1))
    assert [row["id"] for row in await engine.db.fetch("SELECT id FROM incidents")] == [second["id"]]


async def test_a_hundred_thousand_occurrences_are_one_incident(engine: Engine) -> None:
    """The rows that as many failures leave, added by one pass of the leader."""
    await add_item(engine, "mail")
    await engine.fail(*await engine.claim())
    await engine.db.execute(
        "INSERT INTO incident_occurrences (org_id, rule, fingerprint, count) SELECT i.org_id, i.rule, i.fingerprint, 1"
        " FROM incidents i, generate_series(1, 99999)"
    )
    assert (await run_loop(engine))["occurrences"] == 99_999
    assert [row["count"] for row in await open_incidents(engine)] == [100_000]


async def test_concurrent_first_failures_open_one_incident(engine: Engine, second: Engine) -> None:
    sessions = (engine, second)
    for name in ("x", "y"):
        await enqueue_tasks(engine.db, [NewTask(engine.id(name), "mail", "m.m", options=TaskOptions(max_attempts=1))])
    claims = [(await session.claim(limit=1))[0] for session in sessions]
    failures = [[Failure(claim.lease, "it broke", "broken")] for claim in claims]
    await asyncio.gather(
        *(queue.acknowledge(s.db, worker_id=0, failures=f) for s, f in zip(sessions, failures, strict=True))
    )
    await incidents.add_occurrences(engine.db)
    assert [row["count"] for row in await open_incidents(engine)] == [2]
