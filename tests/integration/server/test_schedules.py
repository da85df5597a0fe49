"""Schedules over HTTP, by commands and in the web UI: the same rows and audit entries, and separate organisations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aaiclick.orchestration.gateway.schedule_requests import make_schedule_request
from aaiclick.orchestration.schedules import find_declared_schedules

MODULE = """
from aaiclick.orchestration import NominalDate, job

@job(schedule="0 3 * * *", timezone="Europe/Berlin")
def nightly(day: NominalDate, rows: int = 5) -> None:
    pass

@job(every="5m", overlap="skip", timeout_seconds=60)
def often() -> None:
    pass
"""
STATE = (
    "SELECT entrypoint, job_name, kwargs::text, cron, every_seconds, timezone, missed, overlap, nominal_parameter,"
    " paused_at IS NOT NULL AS paused, due_at IS NOT NULL AS due FROM schedules WHERE name = $1"
)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module with two scheduled jobs, importable in the current directory."""
    (tmp_path / "far_schedules.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "far_schedules"


def create(site, name: str, role: str = "operator-admin", **fields: Any):
    body = {"name": name, "entrypoint": "m.f", "cron": "0 3 * * *", **fields}
    return site.as_(role).post("/v1/schedules", json=body)


def read_audit(site, name: str) -> list[tuple[str, Any]]:
    entries = site.sql("SELECT action, detail::text FROM audit_log WHERE target = $1 ORDER BY id", name)
    return [(entry["action"], json.loads(entry["detail"])) for entry in entries]


def test_schedule_is_created_shown_changed_and_deleted(site) -> None:
    created = create(site, "life", timezone="Europe/Berlin", kwargs={"rows": 3}, nominal_parameter="day")
    assert created.status_code == 201, created.text
    client = site.as_("operator-admin")
    shown = client.get("/v1/schedules/life").json()
    assert (shown["state"], shown["job_name"], shown["kwargs"]) == ("active", "f", {"rows": 3})
    assert len(shown["next_runs"]) == 5
    assert shown["next_runs"][0] == shown["next_run_at"]
    assert create(site, "life").status_code == 409
    assert create(site, "life", replace=True, every="5m", cron=None).status_code == 201
    assert client.get("/v1/schedules/life").json()["every_seconds"] == 300
    assert client.post("/v1/schedules/life/pause").status_code == 204
    assert "life" in [item["name"] for item in client.get("/v1/schedules?state=paused").json()["items"]]
    assert client.post("/v1/schedules/life/resume").status_code == 204
    assert client.delete("/v1/schedules/life").status_code == 204
    for request in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")):
        assert client.request(request[0], f"/v1/schedules/life{request[1]}").status_code == 404


def test_fired_run_is_a_job_of_the_schedule(site) -> None:
    create(site, "fires", nominal_parameter="at")
    client = site.as_("operator-admin")
    body = {"nominal": "2026-01-31T06:00:00+01:00"}
    job_id = client.post("/v1/schedules/fires/fire", json=body).json()["id"]
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["schedule"], job["nominal_at"]) == ("fires", "2026-01-31T05:00:00Z")
    [task] = site.sql("SELECT kwargs::text FROM tasks WHERE job_id = $1", int(job_id))
    assert json.loads(task["kwargs"]) == {"at": "2026-01-31T05:00:00+00:00"}
    [run] = client.get("/v1/schedules/fires").json()["runs"]
    assert (run["id"], run["cause"]) == (job_id, "fire")
    assert client.post("/v1/schedules/fires/fire", json={"nominal": "soon"}).status_code in (400, 422)


def test_backfill_starts_each_time_once(site) -> None:
    create(site, "fills")
    client = site.as_("operator-admin")
    body = {"first": "2026-01-01", "last": "2026-01-03"}
    planned = client.post("/v1/schedules/fills/backfill", json={**body, "dry_run": True}).json()
    assert (planned["count"], planned["job_ids"]) == (3, [])
    assert [step["name"][:10] for step in planned["steps"]] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert len(client.post("/v1/schedules/fills/backfill", json=body).json()["job_ids"]) == 3
    again = client.post("/v1/schedules/fills/backfill", json={**body, "last": "2026-01-04"}).json()
    assert (again["count"], again["before"], len(again["job_ids"])) == (1, 3, 1)
    assert client.post("/v1/schedules/fills/backfill", json={"first": "x", "last": "y"}).status_code in (400, 422)


def test_organisations_do_not_see_each_others_schedules(site) -> None:
    assert create(site, "secret plan", "writer").status_code == 201
    other = site.as_("other-admin")
    assert other.get("/v1/schedules").json()["items"] == []
    for method, path, body in [
        ("GET", "", None), ("DELETE", "", None), ("POST", "/pause", None), ("POST", "/resume", None),
        ("POST", "/fire", {}), ("POST", "/backfill", {"first": "2026-01-01", "last": "2026-01-02"}),
    ]:  # fmt: skip
        assert other.request(method, f"/v1/schedules/secret plan{path}", json=body).status_code == 404
    assert create(site, "secret plan", "other-writer").status_code == 201
    job_id = int(other.post("/v1/schedules/secret plan/fire", json={}).json()["id"])
    [job] = site.sql("SELECT org_id FROM jobs WHERE id = $1", job_id)
    assert job["org_id"] == site.other
    assert len(site.sql("SELECT FROM schedules WHERE name = 'secret plan'")) == 2


HOSTILE = {
    "bad cron": {"cron": "61 * * * *"},
    "never": {"cron": "0 0 31 2 *"},
    "cron of 100 kB": {"cron": "*" * 100_000},
    "unknown zone": {"timezone": "Mars/Phobos"},
    "path as zone": {"timezone": "../../etc/passwd"},
    "no times": {"cron": None},
    "both times": {"every": "5m"},
    "bad interval": {"cron": None, "every": "soon"},
    "two targets": {"item_type": "x"},
    "no target": {"entrypoint": None},
    "name of 100 kB": {"name": "n" * 100_000},
    "name with slash": {"name": "a/b"},
    "NUL in name": {"name": "a\x00b"},
    "unknown field": {"color": "red"},
    "NUL in argument": {"kwargs": {"x": "\x00"}},
    "temporary table": {"kwargs": {"x": {"object_type": "object", "table_id": "t0123456789012345678"}}},
    "priority": {"options": {"priority": 10**9}},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE)
def test_hostile_schedule_is_refused_with_a_problem(site, fields) -> None:
    response = create(site, **{"name": "hostile", **fields})
    assert response.status_code in (400, 404, 409, 422), response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    assert len(response.content) < 5_000
    assert site.sql("SELECT FROM schedules WHERE name = 'hostile'") == []


ADD = ("--cron", "0 3 * * *", "--timezone", "Europe/Berlin", "--arg", "rows=7")


@pytest.mark.parametrize("role", [None, "operator-admin"], ids=["local", "remote"])
def test_commands_manage_a_schedule(site, command, module, role) -> None:
    name = f"by hand {role}"
    result = command("schedules", "add", name, f"{module}.nightly", *ADD, "-o", "json", role=role)
    assert result.exception is None, result.exception
    assert json.loads(result.stdout)["nominal_parameter"] == "day"
    [row] = site.sql(STATE, name)
    assert (row["entrypoint"], json.loads(row["kwargs"]), row["due"]) == (f"{module}.nightly", {"rows": 7}, True)
    for arguments in (
        ("pause", name), ("resume", name), ("fire", name), ("show", name), ("ls",),
        ("backfill", name, "--from", "2026-01-01", "--to", "2026-01-02"), ("rm", name),
    ):  # fmt: skip
        result = command("schedules", *arguments, role=role)
        assert result.exception is None, result.exception
    assert [action for action, _ in read_audit(site, name)] == [
        f"schedule.{verb}" for verb in ("create", "pause", "resume", "fire", "backfill", "delete")
    ]
    result = command("schedules", "add", name, f"{module}.nightly", *ADD[:-1], "rows=many", role=role)
    assert "rows: Input should be a valid integer" in str(result.exception)
    result = command("schedules", "show", name, role=role)
    assert "There is no schedule" in str(result.exception)


def test_sync_declares_changes_and_marks_missing(site, command, module, tmp_path, browser) -> None:
    planned = command("schedules", "sync", module, "--dry-run", "-o", "json", role=None)
    names = [f"{module}.nightly", f"{module}.often"]
    assert json.loads(planned.stdout)["added"] == names
    assert json.loads(command("schedules", "sync", module, "-o", "json").stdout)["added"] == names
    assert json.loads(command("schedules", "sync", module, "-o", "json", role=None).stdout)["unchanged"] == names
    body = {"module": module, "schedules": []}
    assert site.as_("operator-admin").post("/v1/schedules/sync", json=body).json()["missing"] == names
    shown = command("schedules", "show", names[0], role=None)
    assert "no longer declares" in shown.stderr
    assert "no longer declares" in browser.client.get(f"/schedules/{names[0]}").text
    fired = site.as_("operator-admin").post(f"/v1/schedules/{names[0]}/fire", json={})
    assert (fired.status_code, "is missing" in fired.json()["detail"]) == (409, True)


def test_sync_leaves_the_same_rows_and_audit_entry(site, command, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    states = []
    for channel in ("api", "local", "remote"):
        module = f"synced_by_{channel}"
        (tmp_path / f"{module}.py").write_text(MODULE)
        if channel == "api":
            declared = [make_schedule_request(new).model_dump(mode="json") for new in find_declared_schedules(module)]
            body = {"module": module, "schedules": declared}
            site.as_("operator-admin").post("/v1/schedules/sync", json=body).raise_for_status()
        else:
            result = command("schedules", "sync", module, role=None if channel == "local" else "operator-admin")
            assert result.exception is None, result.exception
        rows = [dict(row) for name in ("nightly", "often") for row in site.sql(STATE, f"{module}.{name}")]
        states.append((str(rows).replace(module, "MODULE"), read_audit(site, module)))
    assert states[0][1] == [("schedule.sync", {"added": 2, "changed": 0, "missing": 0})]
    assert states[1:] == states[:1] * 2


def test_actions_are_equal_through_every_channel(site, command, browser) -> None:
    states = {}
    for channel in ("api", "ui", "local", "remote"):
        name = f"equal {channel}"
        create(site, name)
        for action in ("pause", "resume", "pause"):
            if channel == "api":
                site.as_("operator-admin").post(f"/v1/schedules/{name}/{action}").raise_for_status()
            elif channel == "ui":
                response = browser.client.post(f"/schedules/{name}/{action}", data={"csrf": browser.csrf})
                assert response.status_code == 303, response.text
            else:
                result = command("schedules", action, name, role=None if channel == "local" else "operator-admin")
                assert result.exception is None, result.exception
        [row] = site.sql(STATE, name)
        states[channel] = dict(row), read_audit(site, name)
    assert all(state == states["api"] for state in states.values())


def test_pages_show_a_schedule_its_backfill_and_its_jobs(site, browser) -> None:
    create(site, "<b>page", kwargs={"text": "<script>"})
    assert "&lt;b&gt;page" in browser.client.get("/schedules").text
    path = "/schedules/%3Cb%3Epage"
    text = browser.client.get(f"{path}?from=2026-01-01&to=2026-01-02").text
    assert "2 of 2 would run" in text
    form = {"csrf": browser.csrf, "from": "2026-01-01", "to": "2026-01-02"}
    assert browser.client.post(f"{path}/backfill", data=form).status_code == 303
    started = browser.client.post(f"{path}/fire", data={"csrf": browser.csrf})
    assert "page" in browser.client.get(started.headers["location"]).text
    assert 'role="alert"' in browser.client.get(f"{path}?from=x&to=y").text
    assert browser.client.post(f"{path}/delete", data={"csrf": browser.csrf}).status_code == 303
    assert browser.client.get(path).status_code == 404
