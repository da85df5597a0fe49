"""Job functions over HTTP, by commands and in the web UI: docs/functions.md."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from aaiclick.orchestration.function_registry import collect_job_functions
from aaiclick.orchestration.gateway import make_gateway
from aaiclick.server_addresses import ServerEndpoint
from tests.integration.server.browser import Browser

PAGE = (Path(__file__).parents[3] / "docs" / "functions.md").read_text(encoding="utf-8")
MODULE = re.findall(r"```python\n(# trips.py\n.*?)```", PAGE, re.DOTALL)[0]
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
FUNCTION = "trips.report"
PATH = f"/v1/functions/{FUNCTION}"


@pytest.fixture(scope="module")
def trips(site, tmp_path_factory):
    """The page's module, registered by a worker over HTTP for the default organisation and for another one."""
    directory = tmp_path_factory.mktemp("trips")
    (directory / "trips.py").write_text(MODULE)
    sys.path.insert(0, str(directory))
    sys.modules.pop("trips", None)
    __import__("trips")
    jobs = collect_job_functions(["trips"], "v1")

    async def register(role: str) -> None:
        gateway = make_gateway(ServerEndpoint(site.server.url, site.keys[role]), None)
        connection = await gateway.connect()
        await connection.register_functions(jobs)
        await connection.register_functions(jobs)  # a repeated request changes nothing
        await connection.close()
        await gateway.close()

    for role in ("operator-worker", "worker"):
        asyncio.run(register(role))
    yield
    sys.path.remove(str(directory))
    sys.modules.pop("trips", None)


def test_http_worker_registers_functions_and_schedules(site, trips) -> None:
    client = site.as_("operator-reader")
    [function] = client.get("/v1/functions").json()["items"]
    assert function["documentation"] == "Report the trips of a day."
    assert (function["schedule"], function["tags"], function["owner"]) == ("0 3 * * * UTC", {"team": "finance"}, "ada")
    assert function["code_version"] == "v1"
    assert client.get(f"/v1/schedules/{FUNCTION}").json()["declared_in"] == "trips"
    assert site.as_("other-admin").get(PATH).status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{PATH}/run", {"arguments": {"limit": "5"}}),
        ("/v1/jobs", {"name": "j", "entrypoint": FUNCTION, "kwargs": {"limit": "5"}}),
        ("/v1/jobs", {"name": "j", "entrypoint": "trips:report", "kwargs": {"limit": "5"}}),
        ("/v1/schedules", {"name": "s", "entrypoint": FUNCTION, "cron": "@daily", "kwargs": {"limit": "5"}}),
    ],
)
def test_wrong_argument_is_refused_with_its_name(site, trips, path, body) -> None:
    response = site.as_("operator-writer").post(path, json=body)
    assert response.status_code == 422, response.text
    assert 'limit: Input should be integer, not "5".' in response.json()["detail"]
    assert "limit: integer = 100" in response.json()["remedy"]


def test_run_and_rerun_with_changes(site, trips) -> None:
    client = site.as_("operator-writer")
    job_id = client.post(f"{PATH}/run", json={"arguments": {"limit": 5}}).json()["id"]
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["name"], job["entrypoint"], job["tags"], job["owner"]) == (
        "report",
        FUNCTION,
        {"team": "finance"},
        "ada",
    )
    changed = client.post(f"/v1/jobs/{job_id}/rerun", json={"arguments": {"limit": 7}}).json()["id"]
    [row] = site.sql("SELECT kwargs FROM tasks WHERE job_id = $1", int(changed))
    assert json.loads(row["kwargs"]) == {"limit": 7}
    refused = client.post(f"/v1/jobs/{job_id}/rerun", json={"arguments": {"limit": "x"}})
    assert refused.status_code == 422
    plain = client.post("/v1/jobs", json={"name": "plain", "tasks": [{"key": "a", "entrypoint": "m.f"}]}).json()["id"]
    assert client.post(f"/v1/jobs/{plain}/rerun", json={"arguments": {"x": 1}}).status_code == 422
    assert client.post(f"/v1/jobs/{plain}/rerun").status_code == 201


@contextmanager
def unversioned(site) -> Iterator[None]:
    """Let the registration of the function have no version."""
    update = "UPDATE job_functions SET code_version = $2 WHERE entrypoint = $1 RETURNING 1"
    site.sql(update, FUNCTION, None)
    yield
    site.sql(update, FUNCTION, "v1")


def test_skipped_job_is_not_audited_as_created(site, trips) -> None:
    client = site.as_("operator-writer")
    update = "UPDATE job_functions SET policy = $2 WHERE entrypoint = $1 RETURNING entrypoint"
    before, *_ = site.sql("SELECT policy FROM job_functions WHERE entrypoint = $1", FUNCTION)
    site.sql(update, FUNCTION, '{"concurrency": 1, "when_busy": "skip"}')
    job_id = client.post(f"{PATH}/run", json={}).json()["id"]
    for path in (f"/v1/jobs/{job_id}/rerun", f"{PATH}/run"):
        for body in ({}, {"arguments": {"limit": 3}}):
            assert client.post(path, json=body).json()["id"] == job_id
    site.sql(update, FUNCTION, before["policy"])
    audited = "SELECT count(*) FROM audit_log WHERE action = 'job.create' AND target = $1"
    assert site.sql(audited, job_id)[0]["count"] == 1
    client.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()


def test_submitted_job_has_the_options_of_its_function_unless_it_sets_them(site, trips) -> None:
    client = site.as_("operator-writer")
    policy = '{"pin_version": true, "concurrency": 3, "deadline_seconds": 60}'
    before, *_ = site.sql("SELECT policy FROM job_functions WHERE entrypoint = $1", FUNCTION)
    update = "UPDATE job_functions SET policy = $2, timeout_seconds = $3 WHERE entrypoint = $1 RETURNING entrypoint"
    site.sql(update, FUNCTION, policy, 7.0)

    def submit(**fields: object) -> dict:
        job_id = client.post("/v1/jobs", json={"name": "options", "entrypoint": FUNCTION, **fields}).json()["id"]
        query = "SELECT j.*, t.queue FROM jobs j JOIN tasks t ON t.job_id = j.id AND t.type = $2 WHERE j.id = $1"
        [row] = site.sql(query, int(job_id), FUNCTION)
        client.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()
        return row

    row = submit()
    assert (row["queue"], row["concurrency"], row["timeout_seconds"]) == ("runtime:version:v1:default", 3, 7.0)
    assert json.loads(row["tags"]) == {"team": "finance", "owner": "ada"}
    row = submit(pin_version="v9", concurrency=1, when_busy="skip", timeout_seconds=9, owner="hopper")
    assert (row["queue"], row["concurrency"], row["timeout_seconds"]) == ("runtime:version:v9:default", 1, 9.0)
    assert json.loads(row["policy"])["when_busy"] == "skip"
    assert json.loads(row["tags"])["owner"] == "hopper"
    assert submit(pin_version=False)["queue"] == "default"
    with unversioned(site):
        for path in ("/v1/jobs", f"{PATH}/run"):
            body = {"name": "j", "entrypoint": FUNCTION} if path == "/v1/jobs" else {}
            refused = client.post(path, json=body)
            assert (refused.status_code, "version" in refused.json()["detail"]) == (422, True)
    site.sql(update, FUNCTION, before["policy"], None)
    for wrong in ({"when_busy": "skip"}, {"pin_version": True}, {"when_busy": "never"}, {"concurrency": 0}):
        assert client.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f", **wrong}).status_code == 422, wrong


def test_jobs_are_filtered_by_tag_and_owner(site, trips) -> None:
    client = site.as_("operator-writer")
    labels = {"tags": {"team": "sales", "env": "x/y"}, "owner": "grace"}
    job_id = client.post("/v1/jobs", json={"name": "labelled", "entrypoint": "m.f", **labels}).json()["id"]

    def find(**query: object) -> list[str]:
        return [job["id"] for job in client.get("/v1/jobs", params=query).json()["items"]]

    assert find(tag=["team=sales", "env=x/y"]) == [job_id]
    assert find(owner="grace") == [job_id]
    assert find(tag="team=sales", owner="ada") == []
    assert client.get("/v1/jobs", params={"tag": "team"}).status_code in (400, 422)
    assert client.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f", "tags": {"a b": "c"}}).status_code == 422
    browser = Browser(site, "operator-reader")
    page = browser.client.get("/jobs", params={"tag": "team=sales"}).text
    assert f"/jobs/{job_id}" in page
    assert "team=sales" in page or "<b>sales</b>" in page


def test_form_runs_a_function_without_scripts(site, trips) -> None:
    browser = Browser(site, "operator-writer")
    assert f"/functions/{FUNCTION}" in browser.client.get("/functions").text
    form = {"csrf": browser.token(f"/functions/{FUNCTION}"), "back": "/", "arg.day": "2026-02-03", "arg.limit": "many"}
    refused = browser.client.post(f"/functions/{FUNCTION}/run", data=form)
    assert refused.status_code == 422
    assert "limit: Input should be integer" in refused.text
    assert 'value="2026-02-03"' in refused.text
    started = browser.client.post(f"/functions/{FUNCTION}/run", data=form | {"arg.limit": "9"})
    assert started.status_code == 303
    job_id = int(started.headers["location"].rpartition("/")[2])
    [row] = site.sql("SELECT kwargs FROM tasks WHERE job_id = $1", job_id)
    assert json.loads(row["kwargs"]) == {"day": "2026-02-03", "limit": 9}
    link = f"/functions/{quote(FUNCTION)}?job={job_id}"
    page = browser.client.get(f"/jobs/{job_id}").text
    assert link in page
    assert "<dt>Deadline</dt>" not in page
    for due, state in (("- interval '1 minute'", "(overdue)"), ("+ interval '1 hour'", "</time></dd>")):
        site.sql(f"UPDATE jobs SET due_at = now() {due} WHERE id = $1", job_id)
        text = browser.client.get(f"/jobs/{job_id}").text
        assert state in text[text.index("<dt>Deadline</dt>") :][:300]
    assert 'value="9"' in browser.client.get(link).text
    reader = Browser(site, "operator-reader")
    assert "/run" not in reader.client.get(f"/functions/{FUNCTION}").text
    assert reader.client.post(f"/functions/{FUNCTION}/run", data=form | {"csrf": reader.csrf}).status_code == 403


@pytest.mark.parametrize("role", [None, "operator-admin"], ids=["local", "remote"])
def test_commands_of_the_page_run(site, command, trips, role) -> None:
    job_id = site.as_("operator-writer").post(f"{PATH}/run", json={}).json()["id"]
    for parts in COMMANDS:
        if parts[0] != "worker":
            arguments = [job_id if part == "JOB" else part for part in parts]
            result = command(*arguments, role=role)
            assert result.exception is None, (parts, result.exception)
    rows = site.sql("SELECT trigger FROM jobs WHERE name = 'report' ORDER BY id DESC LIMIT 2")
    assert [json.loads(row["trigger"])["arguments"] for row in rows] == [{"limit": 7}, {"limit": 5}]
