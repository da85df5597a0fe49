"""Failed events in the API, the command line, the web UI, the metrics and `doctor`."""

from __future__ import annotations

import json

import httpx
import pytest

from aaiclick.errors import NotFoundError
from aaiclick.store.catalog import dataset_events
from aaiclick.store.enums import DEFAULT_ORG_ID


@pytest.fixture
def failed(site):
    """Ids of two failed events of the first org and one of the second."""

    async def make(connection):
        await connection.execute("DELETE FROM outbox")
        return [await _failed_event(connection, org) for org in (site.org, site.org, site.other)]

    yield [str(event_id) for event_id in site.run(make)]
    site.sql("DELETE FROM outbox")


async def _failed_event(connection, org_id):
    job_id = await dataset_events.open_job(connection, org_id, "broken", None, {})
    await connection.execute("UPDATE jobs SET status = 'FAILED', started_at = now(), completed_at = now(), "
                             "error = 'Event 1 could not be routed. See' WHERE id = $1", job_id)  # fmt: skip
    return await connection.fetchval(
        "INSERT INTO outbox (org_id, job_id, kind, status, attempts, last_error, processed_at) "
        "VALUES ($1, $2, 'route_event', 'Failed', 5, 'canary error', now()) RETURNING id",
        org_id,
        job_id,
    )


def statuses(site, ids):
    rows = site.sql(
        "SELECT id, status::text FROM outbox WHERE id = ANY($1::bigint[])", [int(event_id) for event_id in ids]
    )
    return {str(row["id"]): row["status"] for row in rows}


def test_admins_list_failed_events_of_their_organisation(site, failed) -> None:
    answer = site.as_("admin").get("/v1/outbox", params={"status": "Failed"}).json()
    assert [event["id"] for event in answer["items"]] == [failed[1], failed[0]]
    assert answer["items"][0]["attempts"] == 5
    assert answer["items"][0]["last_error"] == "canary error"
    first = site.as_("admin").get("/v1/outbox", params={"limit": 1}).json()
    rest = site.as_("admin").get("/v1/outbox", params={"limit": 1, "cursor": first["next"]}).json()
    assert [event["id"] for event in first["items"] + rest["items"]] == [failed[1], failed[0]]
    assert site.as_("admin").get("/v1/outbox", params={"status": "Pending"}).json()["items"] == []
    for role in ("reader", "writer", "worker"):
        assert site.as_(role).get("/v1/outbox").status_code == 403
        assert site.as_(role).post("/v1/outbox/retry", json={"all": True}).status_code == 403


def test_retry_over_http_is_all_or_nothing_and_audited(site, failed) -> None:
    admin = site.as_("admin")
    assert admin.post("/v1/outbox/retry", json={}).status_code == 422
    assert admin.post("/v1/outbox/retry", json={"ids": failed[:1], "all": True}).status_code == 422
    answer = admin.post("/v1/outbox/retry", json={"ids": [failed[0], failed[2]]})
    assert answer.status_code == 404
    assert failed[2] in answer.json()["detail"]
    assert set(statuses(site, failed).values()) == {"Failed"}
    assert admin.post("/v1/outbox/retry", json={"ids": failed[:1]}).json() == {"count": 1, "ids": failed[:1]}
    assert statuses(site, failed) == {failed[0]: "Pending", failed[1]: "Failed", failed[2]: "Failed"}
    assert admin.post("/v1/outbox/retry", json={"all": True}).json()["count"] == 1
    assert statuses(site, failed)[failed[2]] == "Failed"
    entries = [entry for entry in admin.get("/v1/audit").json()["items"] if entry["action"] == "events.retry"]
    assert [entry["detail"]["events"] for entry in entries[:2]] == [1, 1]


@pytest.mark.parametrize("role", [None, "admin"])
def test_command_lists_and_retries_failed_events(site, command, failed, role) -> None:
    listed = json.loads(command("events", "ls", "--status", "Failed", "-o", "json", role=role).stdout)
    assert {failed[0], failed[1]} <= {event["id"] for event in listed}
    assert "canary error" in command("events", "ls", role=role).stdout
    assert isinstance(command("events", "retry", "777777", role=role).exception, NotFoundError)
    assert "Give ids or --all" in str(command("events", "retry", role=role).exception)
    assert command("events", "retry", failed[0], role=role).stderr == "1 event queued for retry.\n"
    assert statuses(site, failed)[failed[0]] == "Pending"
    org = site.org
    audited = site.sql("SELECT detail FROM audit_log WHERE org_id = $1 AND action = 'events.retry' ORDER BY id", org)
    assert json.loads(audited[-1]["detail"])["named"] == [failed[0]]
    command("events", "retry", "--all", role=role)
    assert statuses(site, failed)[failed[1]] == "Pending"
    assert statuses(site, failed)[failed[2]] == ("Pending" if role is None else "Failed")


def test_doctor_reports_failed_events_and_their_remedy(site, command, failed) -> None:
    checks = {check["check"]: check for check in json.loads(command("doctor", "-o", "json", role=None).stdout)}
    assert checks["events"]["state"] == "failed"
    assert "3 failed" in checks["events"]["detail"]
    assert "canary error" in checks["events"]["detail"]
    assert "aaiclick events retry" in checks["events"]["remedy"]
    site.sql("DELETE FROM outbox")
    checks = {check["check"]: check for check in json.loads(command("doctor", "-o", "json", role=None).stdout)}
    assert checks["events"]["state"] == "ok"


def test_metrics_count_pending_and_failed_events(site, failed) -> None:
    async def count(connection):
        from aaiclick.server.metrics import render_metrics
        from aaiclick.store.metrics import load_metrics

        return render_metrics(await load_metrics(connection, worker_timeout_seconds=90)).decode()

    text = site.run(count)
    assert "events_failed 3.0" in text
    assert "events_pending 0.0" in text


def test_web_ui_shows_failed_events_to_admins_and_retries_them(site, failed) -> None:
    def sign_in(browser, role):
        csrf = browser.get("/sign-in").text.partition('name="csrf" value="')[2].partition('"')[0]
        assert browser.post("/sign-in", data={"csrf": csrf, "credential": site.keys[role]}).status_code == 303
        return browser.get("/dead-letters").text

    with httpx.Client(base_url=site.server.url, timeout=30) as browser:
        assert "canary error" not in sign_in(browser, "reader")
    with httpx.Client(base_url=site.server.url, timeout=30) as browser:
        page = sign_in(browser, "admin")
        assert page.count("canary error") == 2
        csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        answer = browser.post("/dead-letters/events/retry", data={"csrf": csrf, "id": failed[0]})
        assert answer.status_code == 303
        assert statuses(site, failed)[failed[0]] == "Pending"
        assert browser.get("/dead-letters").text.count("canary error") == 1


def test_the_default_organisation_sees_no_events_of_others(site, failed) -> None:
    assert failed
    assert site.as_("operator-admin").get("/v1/outbox").json()["items"] == []
    assert site.sql("SELECT count(*) FROM outbox WHERE org_id = $1", DEFAULT_ORG_ID)[0]["count"] == 0
