"""Routing of events: poison events, back-off, retry, and one task per update."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from aaiclick import failpoints
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.orchestration.loops import event_router
from aaiclick.store.catalog import dataset_events, event_routing, outbox
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.catalog.conftest import SHOP

GOOD = 5


async def dataset_of(shop, name="shop.raw"):
    return await shop.db.fetchrow(
        "SELECT p.dataset_uuid AS dataset, p.dataset_version AS generation, p.dag_version_id "
        "FROM dag_version_datasets p JOIN datasets d ON d.id = p.dataset_uuid WHERE d.name = $1",
        name,
    )


async def emit_poison(shop, payload, org_id=DEFAULT_ORG_ID):
    """One event with this payload, in a job of its own."""
    job_id = await dataset_events.open_job(shop.db, org_id, "poison", None, {})
    event_id = await shop.db.fetchval(
        "INSERT INTO outbox (org_id, job_id, kind, payload) VALUES ($1, $2, 'route_event', $3) "
        "RETURNING id", org_id, job_id, json.dumps(payload),
    )  # fmt: skip
    await shop.db.execute("UPDATE jobs SET open_events = 1 WHERE id = $1", job_id)
    return job_id, event_id


async def event_row(shop, event_id):
    return await shop.db.fetchrow("SELECT status::text, attempts, last_error, available_at, processed_at FROM outbox "
                                  "WHERE id = $1", event_id)  # fmt: skip


async def payload_of(shop, **changes):
    dataset = await dataset_of(shop)
    good = {"dataset": str(dataset["dataset"]), "generation": str(dataset["generation"]), "partitions": [""]}
    return good | changes


async def broken_payloads(shop):
    return {
        "a list": [1, 2],
        "nothing": {},
        "no uuid": await payload_of(shop, dataset="raw"),
        "partitions": await payload_of(shop, partitions="2026"),
        "numbers": await payload_of(shop, partitions=[1]),
        "unknown dataset": await payload_of(shop, dataset=str(uuid4())),
        "unknown version": await payload_of(shop, build=str(uuid4())),
        "unknown definition": await payload_of(shop, only=str(uuid4())),
    }


async def route_all(shop, now=None):
    return (await event_router.run_once(shop.db, now=now))["events"]


async def fail_for_good(shop):
    """Route until the last attempt has been made."""
    now = datetime.now(UTC)
    for _ in range(event_routing.MAX_ATTEMPTS):
        await route_all(shop, now)
        now += timedelta(hours=1)


KINDS = (
    "a list", "nothing", "no uuid", "partitions", "numbers", "unknown dataset", "unknown version", "unknown definition",
)  # fmt: skip


@pytest.mark.parametrize("payload_kind", KINDS)
async def test_poison_payload_does_not_block_other_events(shop, payload_kind):
    await shop.deploy()
    before = await shop.emit("shop.raw", GOOD)
    job_id, event_id = await emit_poison(shop, (await broken_payloads(shop))[payload_kind])
    after = await shop.emit("shop.raw", GOOD)
    assert await route_all(shop) == 2 * GOOD + 1
    assert await shop.tasks(before) == await shop.tasks(after) == [("tidy",)] * GOOD
    status, attempts, error, available_at, processed_at = await event_row(shop, event_id)
    assert (status, attempts, processed_at) == ("Pending", 1, None)
    assert error
    assert available_at > datetime.now(UTC) - timedelta(seconds=30)
    assert await shop.db.fetchval("SELECT completed_at IS NULL FROM jobs WHERE id = $1", job_id)
    await shop.check()
    await fail_for_good(shop)
    assert (await event_row(shop, event_id))["status"] == "Failed"
    (incident,) = await shop.db.fetch("SELECT rule, cause FROM incidents")
    assert (incident["rule"], str(event_id) in incident["cause"]) == ("event_unroutable", True)
    job = await shop.db.fetchrow("SELECT status::text, error, open_events FROM jobs WHERE id = $1", job_id)
    assert (job["status"], job["open_events"]) == ("FAILED", 0)
    assert f"Event {event_id} could not be routed" in job["error"]
    await shop.check()


async def test_definition_with_broken_settings_fails_its_own_events_only(shop):
    await shop.deploy()
    other = SHOP.replace("name: shop", "name: other", 1).replace("publish: [daily]", "")
    await shop.deploy(other)
    await shop.db.execute("UPDATE job_definitions SET scaling = '{\"max_concurrency\": \"many\"}' "
                          "WHERE dag_name = 'other' AND name = 'tidy'")  # fmt: skip
    poisoned, healthy = await shop.emit("other.raw", 3), await shop.emit("shop.raw", GOOD)
    await route_all(shop)
    assert await shop.tasks(healthy) == [("tidy",)] * GOOD
    assert await shop.tasks(poisoned) == []
    rows = await shop.db.fetch("SELECT attempts, last_error FROM outbox")
    assert [row["attempts"] for row in rows] == [1, 1, 1]
    assert all("integer" in row["last_error"] for row in rows)
    await shop.db.execute("UPDATE job_definitions SET scaling = NULL WHERE dag_name = 'other'")
    await route_all(shop, datetime.now(UTC) + timedelta(hours=1))
    assert len(await shop.tasks(poisoned)) == 3
    await shop.check()


async def test_constraint_violation_fails_its_own_event_only(shop):
    """A trigger refuses one task, as a constraint would."""
    await shop.deploy()
    await shop.db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE check_violation USING MESSAGE = 'refused by a test'; END $$"
    )
    first, poisoned, last = [await shop.emit("shop.raw", 2) for _ in range(3)]
    await shop.db.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW WHEN (NEW.job_id = {poisoned}) "
                          "EXECUTE FUNCTION refuse()")  # fmt: skip
    try:
        await route_all(shop)
        assert [len(await shop.tasks(job_id_)) for job_id_ in (first, poisoned, last)] == [2, 0, 2]
        rows = await shop.db.fetch("SELECT job_id, attempts, last_error FROM outbox")
        assert [(row["job_id"], row["attempts"]) for row in rows] == [(poisoned, 1)] * 2
        assert "refused by a test" in rows[0]["last_error"]
    finally:
        await shop.db.execute("DROP FUNCTION refuse CASCADE")
    await shop.check()


async def test_deleted_definition_and_version_fail_their_events_only(shop):
    await shop.deploy()
    second = await shop.deploy(SHOP.replace("name: shop", "name: gone", 1).replace("publish: [daily]", ""))
    dataset = await dataset_of(shop, "gone.raw")
    _, event_id = await emit_poison(
        shop, {"dataset": str(dataset["dataset"]), "generation": str(dataset["generation"]), "partitions": [""]}
    )
    healthy = await shop.emit("shop.raw", GOOD)
    await shop.db.execute("DELETE FROM dag_current_versions WHERE dag_version_id = $1", second.version_id)
    await shop.db.execute("DELETE FROM datasets WHERE producer_dag_name = 'gone'")
    await shop.db.execute("DELETE FROM dag_versions WHERE id = $1", second.version_id)
    await route_all(shop)
    assert await shop.tasks(healthy) == [("tidy",)] * GOOD
    assert "There is no dataset" in (await event_row(shop, event_id))["last_error"]


async def test_failing_event_is_retried_after_back_off(shop):
    await shop.deploy()
    _, event_id = await emit_poison(shop, {})
    now = datetime.now(UTC)
    pauses = []
    for attempt in range(1, event_routing.MAX_ATTEMPTS):
        assert await route_all(shop, now) == 1
        assert await route_all(shop, now) == 0
        row = await event_row(shop, event_id)
        assert row["attempts"] == attempt
        pauses.append(round((row["available_at"] - now).total_seconds()))
        assert await route_all(shop, row["available_at"] - timedelta(milliseconds=1)) == 0
        now = row["available_at"]
    assert pauses == [1, 5, 25, 125]
    await route_all(shop, now)
    assert (await event_row(shop, event_id))["status"] == "Failed"
    assert await route_all(shop, now + timedelta(days=1)) == 0


async def test_errors_of_the_connection_charge_no_event(shop):
    await shop.deploy()
    await shop.emit("shop.raw", 2)
    failpoints.arm_faults("route.before=error", None)
    with pytest.raises(failpoints.FaultError):
        await event_routing.route_events(shop.db)
    failpoints.arm_faults("", None)
    assert [row["attempts"] for row in await shop.db.fetch("SELECT attempts FROM outbox")] == [0, 0]


async def test_retry_routes_a_failed_event_and_reopens_its_job(shop):
    await shop.deploy()
    job_id, event_id = await emit_poison(shop, {})
    await fail_for_good(shop)
    await shop.db.execute("UPDATE outbox SET payload = $2 WHERE id = $1", event_id, json.dumps(await payload_of(shop)))
    assert [row["id"] for row in await outbox.list_events(shop.db, status="Failed")] == [event_id]
    with pytest.raises(NotFoundError, match="no failed event 7"):
        await outbox.retry_events(shop.db, [event_id, 7])
    assert await outbox.retry_events(shop.db, [event_id]) == [event_id]
    job = await shop.db.fetchrow(
        "SELECT status::text, error, open_events, completed_at FROM jobs WHERE id = $1", job_id
    )
    assert tuple(job) == ("RUNNING", None, 1, None)
    await shop.check()
    await route_all(shop)
    assert await shop.tasks(job_id) == [("tidy",)]
    await shop.check()


async def test_retry_is_refused_for_events_of_a_cancelled_job(shop):
    await shop.deploy()
    job_id, event_id = await emit_poison(shop, {})
    await shop.db.execute("UPDATE jobs SET cancel_requested_at = now() WHERE id = $1", job_id)
    await fail_for_good(shop)
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", job_id) == "CANCELLED"
    with pytest.raises(ConflictError, match="cancelled"):
        await outbox.retry_events(shop.db, [event_id])


async def test_many_poison_events_do_not_block_others(shop):
    await shop.deploy()
    for _ in range(30):
        await emit_poison(shop, {})
    healthy = await shop.emit("shop.raw", GOOD)
    await route_all(shop)
    assert await shop.tasks(healthy) == [("tidy",)] * GOOD
    assert await shop.db.fetchval("SELECT count(*) FROM outbox WHERE attempts = 1") == 30


# --- one task per update -------------------------------------------------------------------------------------------


async def emit_update(shop, cursor, partitions=("",), name="shop.raw"):
    dataset = await dataset_of(shop, name)
    job_id = await dataset_events.open_job(shop.db, DEFAULT_ORG_ID, "again", dataset["dag_version_id"], {})
    event = dataset_events.Event(
        DEFAULT_ORG_ID, job_id, dataset["dataset"], dataset["generation"], partitions, cursor=cursor
    )
    async with shop.db.transaction():
        await dataset_events.count_events(shop.db, await dataset_events.emit_events(shop.db, [event]))
    return job_id


@pytest.mark.parametrize("together", [True, False])
async def test_an_update_delivered_twice_makes_one_task(shop, together):
    await shop.deploy()
    jobs = []
    for _ in range(3):
        jobs.append(await emit_update(shop, "17"))
        if not together:
            await route_all(shop)
    await route_all(shop)
    assert [await shop.tasks(job) for job in jobs] == [[("tidy",)], [], []]
    dataset = await dataset_of(shop)
    keys = [row["dedupe_key"] for row in await shop.db.fetch("SELECT dedupe_key FROM tasks")]
    assert keys == [f"cursor:{dataset['dataset']}:{dataset['generation']}:17"]
    await emit_update(shop, "18")
    await route_all(shop)
    assert await shop.db.fetchval("SELECT count(*) FROM tasks") == 2
    await shop.check()


async def test_a_partition_delivered_twice_makes_one_task(shop):
    await shop.deploy()
    first = await emit_update(shop, "17", ("2026-01-01", "2026-01-02"), "shop.orders")
    second = await emit_update(shop, "17", ("2026-01-02", "2026-01-03"), "shop.orders")
    await route_all(shop)
    partitioned = [task for job in (first, second) for task in await shop.tasks(job) if task[0] == "sums"]
    assert sorted(partitioned) == [("sums", "2026-01-01"), ("sums", "2026-01-02"), ("sums", "2026-01-03")]
    await shop.check()


async def test_events_of_completions_carry_the_ticket_as_cursor(shop):
    await shop.deploy()
    job_id = await shop.run({"id": 1, "day": "2026-01-01", "amount": 1})
    rows = await shop.db.fetch("SELECT type, dedupe_key FROM tasks WHERE job_id = $1 ORDER BY id", job_id)
    assert rows[0]["dedupe_key"] is None
    assert all("event-" not in row["dedupe_key"] for row in rows[1:])


@pytest.mark.parametrize("failpoint", ["route.before", "route.after"])
async def test_update_redelivered_after_router_death_makes_one_task(shop, failpoint):
    await shop.deploy()
    await emit_update(shop, "17")
    failpoints.arm_faults(f"{failpoint}=error", None)
    with pytest.raises(failpoints.FaultError):
        await event_routing.route_events(shop.db)
    failpoints.arm_faults("", None)
    await emit_update(shop, "17")
    await route_all(shop)
    assert await shop.db.fetchval("SELECT count(*) FROM tasks") == 1
    await shop.check()
