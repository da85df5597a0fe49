"""Each operation leaves the same rows and the same audit entry through API, web UI, local and remote command line."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path

import pytest

from aaiclick import operations
from aaiclick.client import AsyncClient, Client
from aaiclick.operations.operation import OPERATIONS
from aaiclick.store.enums import DEFAULT_ORG_ID

for module in pkgutil.iter_modules(operations.__path__):
    importlib.import_module(f"aaiclick.operations.{module.name}")

CHANNELS = ("api", "ui", "local", "remote")
FAIL = (
    "UPDATE tasks SET status = 'FAILED', readiness = NULL, completed_at = now(), error = 'it broke'"
    " WHERE job_id = $1 RETURNING id"
)
END_JOB = (
    "UPDATE jobs SET status = 'FAILED', started_at = now(), completed_at = now(), open_tasks = 0, failed_tasks = 1"
    " WHERE id = $1 RETURNING id"
)


QUEUE = (
    "SELECT weight, max_running, rate_per_second, rate_burst, paused_at IS NOT NULL AS paused"
    " FROM queues WHERE name = $1"
)
TYPE = "SELECT retry_policy::text, paused_at IS NOT NULL AS paused FROM task_types WHERE name = $1"


@pytest.fixture
def perform(site, command, browser):
    """Perform an action of a job through a channel."""

    def perform(channel: str, action: str, job_id: str) -> None:
        if channel == "api":
            site.as_("operator-admin").post(f"/v1/jobs/{job_id}/{action}").raise_for_status()
        elif channel == "ui":
            response = browser.client.post(f"/jobs/{job_id}/{action}", data={"csrf": browser.csrf})
            assert response.status_code == 303, response.text
        else:
            result = command("jobs", action, job_id, role=None if channel == "local" else "operator-admin")
            assert result.exception is None, result.exception

    return perform


def submit_job(site, *, failed: bool) -> str:
    writer = site.as_("operator-writer")
    job_id = writer.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f"}).json()["id"]
    if failed:
        site.sql(FAIL, int(job_id))
        site.sql(END_JOB, int(job_id))
    return job_id


def read_state(site, job_id: str) -> dict[str, object]:
    """The job, its tasks and its audit entries, without ids and times."""
    [job] = site.sql(
        "SELECT status, total_tasks, open_tasks, failed_tasks, cancelled_tasks, paused_at IS NOT NULL AS paused, error"
        " FROM jobs WHERE id = $1",
        int(job_id),
    )
    tasks = site.sql(
        "SELECT status, readiness, attempt, failures, error FROM tasks WHERE job_id = $1 ORDER BY id", int(job_id)
    )
    entries = site.sql(
        "SELECT action, detail::text, org_id FROM audit_log WHERE target = $1 AND action <> 'job.create' ORDER BY id",
        job_id,
    )
    return {
        "job": dict(job),
        "tasks": [dict(task) for task in tasks],
        "audit": [(entry["action"], json.loads(entry["detail"] or "null"), entry["org_id"]) for entry in entries],
    }


@pytest.mark.parametrize(
    ("actions", "failed"), [(["cancel"], False), (["pause"], False), (["pause", "resume"], False), (["retry"], True)]
)
def test_channels_leave_the_same_rows_and_audit_entry(site, perform, actions, failed) -> None:
    states = {}
    for channel in CHANNELS:
        job_id = submit_job(site, failed=failed)
        for action in actions:
            perform(channel, action, job_id)
        states[channel] = read_state(site, job_id)
    assert [entry[0] for entry in states["api"]["audit"]] == [f"job.{action}" for action in actions]
    for channel in CHANNELS[1:]:
        assert states[channel] == states["api"], channel


def test_release_leaves_the_same_audit_entry(site, perform) -> None:
    states = []
    for channel in ("api", "local", "remote"):
        job_id = submit_job(site, failed=True)
        perform(channel, "release", job_id)
        states.append(read_state(site, job_id))
    assert states[0]["audit"] == [("job.release", {"tables": 0}, states[0]["audit"][0][2])]
    assert states[1:] == states[:1] * 2


@pytest.mark.parametrize(
    ("command_line", "request_body", "form", "query"),
    [
        ("queues pause", ("POST", "/v1/queues/{}/pause", None), ("/queues/pause", {}), QUEUE),
        ("queues resume", ("POST", "/v1/queues/{}/resume", None), ("/queues/resume", {}), QUEUE),
        (
            "queues set --weight 3 --max-running 2",
            ("PUT", "/v1/queues/{}", {"weight": 3, "max_running": 2}),
            ("/queues/limits", {"weight": "3", "max_running": "2", "rate_per_second": "", "rate_burst": ""}),
            QUEUE,
        ),
        ("types pause", ("POST", "/v1/types/{}/pause", None), None, TYPE),
        ("types resume", ("POST", "/v1/types/{}/resume", None), None, TYPE),
        ("types retry --default", ("PUT", "/v1/types/{}", {"retry_policy": None}), None, TYPE),
        (
            "types retry --base-seconds 2",
            ("PUT", "/v1/types/{}", {"retry_policy": {"base_seconds": 2, "cap_seconds": 3600}}),
            None,
            TYPE,
        ),
    ],
)
def test_settings_are_the_same_through_every_channel(
    site, command, browser, command_line: str, request_body, form, query
) -> None:
    states = {}
    for channel in CHANNELS if form else ("api", "local", "remote"):
        name = f"{command_line.split()[1]}-{len(command_line)}-{channel}"
        if channel == "api":
            method, path, body = request_body
            site.as_("operator-admin").request(method, path.format(name), json=body).raise_for_status()
        elif channel == "ui":
            path, fields = form
            response = browser.client.post(path, data={"csrf": browser.csrf, "name": name, **fields})
            assert response.status_code == 303, response.text
        else:
            noun, verb, *options = command_line.split()
            result = command(noun, verb, name, *options, role=None if channel == "local" else "operator-admin")
            assert result.exception is None, result.exception
        [row] = site.sql(query, name) or [{}]
        entries = site.sql("SELECT action, detail::text, org_id FROM audit_log WHERE target = $1", name)
        audit = [(entry["action"], json.loads(entry["detail"] or "null"), entry["org_id"]) for entry in entries]
        states[channel] = (dict(row), audit)
    assert len(states["api"][1]) == 1
    for channel, state in states.items():
        assert state == states["api"], channel


def create_task(site) -> int:
    """Create a queue item that waits."""
    return int(site.as_("operator-writer").post("/v1/tasks", json={"items": [{"type": "t"}]}).json()["ids"][0])


def create_dead_letter(site) -> int:
    task_id = create_task(site)
    site.sql(
        "UPDATE tasks SET status = 'DEAD_LETTER', readiness = NULL, completed_at = now(), attempt = 1, failures = 1,"
        " error = 'it broke', error_fingerprint = 'F' WHERE id = $1 RETURNING id",
        task_id,
    )
    return task_id


def create_failed_job(site) -> int:
    return int(submit_job(site, failed=True))


def create_worker(site) -> int:
    [row] = site.sql("INSERT INTO workers (id, hostname, pid) SELECT count(*) + 900, 'h', 1 FROM workers RETURNING id")
    return row["id"]


def create_failed_event(site) -> int:
    [row] = site.sql(
        "INSERT INTO outbox (id, org_id, job_id, kind, status, attempts, last_error, processed_at)"
        " OVERRIDING SYSTEM VALUE"
        " SELECT 7654321 + count(*), $1, $2, 'route_event', 'Failed', 5, 'it broke', now() FROM outbox RETURNING id",
        DEFAULT_ORG_ID,
        create_failed_job(site),
    )
    return row["id"]


def create_incident(site) -> int:
    [row] = site.sql(
        "INSERT INTO incidents (id, org_id, rule, fingerprint, severity, title) OVERRIDING SYSTEM VALUE"
        " SELECT 7654321 + count(*), $1, 'job_failed', 'f' || count(*), 'error', 'It broke' FROM incidents"
        " RETURNING id",
        DEFAULT_ORG_ID,
    )
    return row["id"]


INCIDENT = (
    "SELECT acknowledged_at IS NOT NULL AS acknowledged, closed_at IS NOT NULL AS closed,"
    " snoozed_until > now() + interval '59 minutes' AS snoozed FROM incidents WHERE id = $1"
)
TASK = "SELECT status::text, readiness::text, attempt, failures, error FROM tasks WHERE id = $1"
WORKER = "SELECT status::text, drain_requested_at IS NOT NULL AS draining FROM workers WHERE id = $1"
EVENT = "SELECT status::text, attempts, last_error FROM outbox WHERE id = $1"
COPY = (
    "SELECT j.name, j.status::text, j.total_tasks FROM audit_log a JOIN jobs j ON j.id = a.target::bigint"
    " WHERE a.action = 'job.create' AND a.detail ->> 'rerun_of' = $1::bigint::text"
)
SELECTED = ({"ids": ["ID"]}, {"id": "ID"})


@pytest.mark.parametrize(
    ("create", "command_line", "path", "form_path", "fields", "query"),
    [
        (create_task, "tasks cancel", "/v1/tasks/ID/cancel", "/tasks/ID/cancel", (None, {}), TASK),
        (create_dead_letter, "tasks clear", "/v1/tasks/ID/clear", "/tasks/ID/clear", (None, {}), TASK),
        (create_dead_letter, "dlq redrive", "/v1/dead-letters/redrive", "/dead-letters/redrive", SELECTED, TASK),
        (create_dead_letter, "dlq discard", "/v1/dead-letters/discard", "/dead-letters/discard", SELECTED, TASK),
        (create_failed_event, "events retry", "/v1/outbox/retry", "/dead-letters/events/retry", SELECTED, EVENT),
        (create_worker, "workers drain", "/v1/workers/ID/drain", "/workers/ID/drain", (None, {}), WORKER),
        (
            create_incident,
            "incidents ack",
            "/v1/incidents/ID/acknowledge",
            "/incidents/ID/acknowledge",
            (None, {}),
            INCIDENT,
        ),
        (create_incident, "incidents snooze", "/v1/incidents/ID/snooze", "/incidents/ID/snooze", ({}, {}), INCIDENT),
        (create_incident, "incidents close", "/v1/incidents/ID/close", "/incidents/ID/close", (None, {}), INCIDENT),
        (create_failed_job, "jobs rerun", "/v1/jobs/ID/rerun", "/jobs/ID/rerun", (None, {}), COPY),
    ],
)
def test_work_is_changed_equally_through_every_channel(
    site, command, browser, create, command_line: str, path: str, form_path: str, fields, query: str
) -> None:
    states = {}
    for channel in CHANNELS:
        target = create(site)
        [last] = site.sql("SELECT coalesce(max(id), 0) AS id FROM audit_log")
        body, form = json.loads(json.dumps(fields).replace("ID", str(target)))
        if channel == "api":
            response = site.as_("operator-admin").post(path.replace("ID", str(target)), json=body)
            assert response.is_success, response.text
        elif channel == "ui":
            response = browser.client.post(form_path.replace("ID", str(target)), data={"csrf": browser.csrf, **form})
            assert response.status_code == 303, response.text
        else:
            role = None if channel == "local" else "operator-admin"
            result = command(*command_line.split(), str(target), role=role)
            assert result.exception is None, result.exception
        entries = site.sql(
            "SELECT action, CASE action WHEN 'job.create' THEN '' ELSE target END AS target, detail::text, org_id"
            " FROM audit_log WHERE id > $1 ORDER BY id",
            last["id"],
        )
        audit = [{name: str(value).replace(str(target), "ID") for name, value in entry.items()} for entry in entries]
        [row] = site.sql(query, target)
        states[channel] = (dict(row), audit)
    assert len(states["api"][1]) == 1
    for channel, state in states.items():
        assert state == states["api"], channel


@pytest.mark.parametrize("channel", CHANNELS)
def test_unknown_job_is_refused_everywhere(site, command, browser, channel) -> None:
    if channel == "api":
        assert site.as_("operator-admin").post("/v1/jobs/7/cancel").status_code == 404
    elif channel == "ui":
        assert browser.client.post("/jobs/7/cancel", data={"csrf": browser.csrf}).status_code == 404
    else:
        result = command("jobs", "cancel", "7", role=None if channel == "local" else "operator-admin")
        assert "There is no job 7." in str(result.exception)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_clients_have_the_signature_of_each_operation(name) -> None:
    operation = list(inspect.signature(OPERATIONS[name].function).parameters.values())[2:]
    for client in (Client, AsyncClient):
        declared = getattr(client, name)
        method = list(inspect.signature(getattr(declared, "function", declared)).parameters.values())[1:]
        assert [(p.name, p.kind, p.default) for p in method] == [(p.name, p.kind, p.default) for p in operation]


def test_operations_are_in_the_module_of_their_endpoint() -> None:
    for name, operation in OPERATIONS.items():
        resource = getattr(getattr(Client, name), "resource", None)  # a method that streams is not declared
        assert resource is None or operation.function.__module__ == f"aaiclick.operations.{resource}"


CATALOG_DAG = """
name: {name}
jobs:
  - {{name: fetch, activation: source, operator: python, source: {{kind: manual}}, outputs: [raw],
     config: {{function: "far_tasks:fetch"}}}}
  - {{name: nightly, activation: source, operator: python, outputs: [night],
     source: {{kind: cron, schedule: "0 {hour} * * *"}}, config: {{function: "far_tasks:fetch"}}}}
publish: [{{output: raw, name: {name}_raw}}]
"""
DAYS = ("2026-03-01", "2026-03-02")
CATALOG_STEPS = [
    ("dag deploy {file} --no-wait", ("POST", "/v1/dags/deploy", {"text": "{text}", "file": "{file}"}), None),
    ("dag deploy {other} --no-wait", ("POST", "/v1/dags/deploy", {"text": "{other_text}", "file": "{other}"}), None),
    ("dag rollback {name}", ("POST", "/v1/dags/{name}/rollback", None), ("/dags/{name}/rollback", {})),
    ("dag pause {name}", ("POST", "/v1/dags/{name}/pause", None), ("/dags/{name}/pause", {})),
    ("dag resume {name}", ("POST", "/v1/dags/{name}/resume", None), ("/dags/{name}/resume", {})),
    (
        "dag trigger {name} --job fetch",
        ("POST", "/v1/dags/{name}/run", {"job": "fetch"}),
        ("/dags/{name}/fire", {"job": "fetch"}),
    ),
    (
        f"dag backfill {{name}} --job nightly --from {DAYS[0]} --to {DAYS[1]}",
        ("POST", "/v1/dags/{name}/backfill", {"job": "nightly", "first": DAYS[0], "last": DAYS[1]}),
        ("/dags/{name}/backfill", {"job": "nightly", "from": DAYS[0], "to": DAYS[1]}),
    ),
    (
        "datasets readers {name}_raw b-team a-team",
        ("PUT", "/v1/datasets/{name}_raw/readers", {"roles": ["b-team", "a-team"]}),
        None,
    ),
    (
        "datasets register {name}_raw --range 0 9",
        ("POST", "/v1/datasets/{name}_raw/versions", {"range_start": 0, "range_end": 9}),
        None,
    ),
    ("datasets rematerialize {name}_raw --no-wait", ("POST", "/v1/datasets/{name}_raw/rematerialize", None), None),
]
IDENTIFIER = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{64}|\d{15,}")


def read_catalog(site, name: str) -> dict[str, object]:
    """Rows and audit entries of a DAG and its dataset, without names, ids and times."""
    queries = {
        "audit": "SELECT action, target, detail::text, org_id FROM audit_log WHERE target LIKE $1 || '%' ORDER BY id",
        "jobs": "SELECT name, status::text, total_tasks FROM jobs WHERE name LIKE $1 || '%' ORDER BY id",
        "tasks": "SELECT type, status::text, readiness::text FROM tasks WHERE type LIKE $1 || '%' ORDER BY id",
        "datasets": "SELECT name, read_roles FROM datasets WHERE producer_dag_name = $1 ORDER BY name",
        "versions": "SELECT v.range_start, v.range_end FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_uuid"
        " WHERE d.producer_dag_name = $1 ORDER BY d.name, v.created_at, v.range_start",
        "dags": "SELECT v.yaml, c.paused_at FROM dag_current_versions c JOIN dag_versions v ON v.id = c.dag_version_id"
        " WHERE c.dag_name = $1",
    }  # fmt: skip
    return {
        subject: [IDENTIFIER.sub("ID", str(tuple(row)).replace(name, "NAME")) for row in site.sql(query, name)]
        for subject, query in queries.items()
    }


def test_dags_and_datasets_are_the_same_through_every_channel(site, command, browser, tmp_path) -> None:
    admin = site.as_("operator-admin")
    for slug in ("a-team", "b-team"):
        admin.post("/v1/roles", json={"slug": slug, "name": slug}).raise_for_status()
    states = {}
    for channel in CHANNELS:
        values = {"name": f"stock{channel}", "file": str(tmp_path / "dag.yaml"), "other": str(tmp_path / "other.yaml")}
        for key, path, hour in (("text", "file", 6), ("other_text", "other", 7)):
            values[key] = CATALOG_DAG.format(name=values["name"], hour=hour)
            Path(values[path]).write_text(values[key])
        for command_line, (method, path, body), form in CATALOG_STEPS:
            if channel in ("local", "remote"):
                arguments = command_line.format(**values).split()
                result = command(*arguments, role=None if channel == "local" else "operator-admin")
                assert result.exception is None, (command_line, result.exception)
            elif channel == "ui" and form is not None:
                fields = {"csrf": browser.csrf, **form[1]}
                response = browser.client.post(form[0].format(**values), data=fields)
                assert response.status_code == 303, response.text
            else:
                filled = body and {
                    key: value.format(**values) if isinstance(value, str) else value for key, value in body.items()
                }
                response = admin.request(method, path.format(**values), json=filled)
                assert response.is_success, response.text
        states[channel] = read_catalog(site, values["name"])
    assert len(states["api"]["audit"]) == len(CATALOG_STEPS)
    for channel in CHANNELS[1:]:
        assert states[channel] == states["api"], channel
