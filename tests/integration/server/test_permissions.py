"""Every route enforces its declared permission for every role, and hides other organisations."""

from __future__ import annotations

from uuid import uuid4

import pytest
from fastapi.routing import APIRoute

from aaiclick.operations.actor import Permission, scope_permissions
from aaiclick.server.app import create_app
from aaiclick.server.app_state import AppState
from aaiclick.server.routes import ALL
from aaiclick.server.routing import PERMISSION_EXTENSION
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import Settings

ROUTES = [(route.method, route.path, route.permission) for routes in ALL for route in routes.declared]
SOMEBODY = ("reader", "writer", "admin", "worker", "other-admin", "operator-reader", "operator-admin")
NOBODYS = {
    "job_id": "1", "task_id": "1", "worker_id": "1", "name": "nobodys", "table_id": "t1", "org": str(uuid4()),
    "org_id": str(uuid4()), "user": str(uuid4()), "role": str(uuid4()), "key": str(uuid4()), "dag": "nobodys",
    "job": "nobodys", "dataset": "nobodys", "schedule": "nobodys",
    "incident_id": "1",
    "function": "nobodys", "approval_id": "1",
}  # fmt: skip


def fill(path: str, values: dict[str, str]) -> str:
    return path.replace(":path", "").format(**values)


def ask(client, method: str, path: str) -> int:
    """The status only: some responses are endless streams."""
    with client.stream(method, path) as response:
        return response.status_code


def app():
    return create_app(AppState(Settings(), PostgresEndpoint("nowhere", 1, "nobody", "none")))


async def test_every_route_declares_its_permission() -> None:
    served = {(method, route.path) for route in app().routes for method in getattr(route, "methods", ["?"])}
    assert served == {(method, path) for method, path, _ in ROUTES}
    assert all(isinstance(route, APIRoute) and route.openapi_extra[PERMISSION_EXTENSION] for route in app().routes)


async def test_route_without_a_permission_cannot_be_installed() -> None:
    async def forgotten() -> None: ...

    with pytest.raises(KeyError, match=PERMISSION_EXTENSION):
        app().add_api_route("/v1/forgotten", forgotten)


@pytest.mark.parametrize(("method", "path", "permission"), ROUTES)
def test_routes_enforce_their_declared_permission(site, method: str, path: str, permission: Permission) -> None:
    url = fill(path, NOBODYS)
    assert (ask(site.as_(None), method, url) == 401) == (permission is not Permission.PUBLIC)
    for who in SOMEBODY:
        allowed = scope_permissions([who.rpartition("-")[2]], is_operator=who.startswith("operator"))
        status = ask(site.as_(who), method, url)
        assert (status == 403) == (permission not in allowed), (who, status)
        assert status != 401
        assert status < 500 or path == "/health"  # 503: the site has no worker


@pytest.fixture(scope="module")
def own_ids(site):
    """Ids of one resource of each type in the first organisation."""
    admin = site.as_("admin")
    job = admin.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f"}).json()["id"]
    task = admin.post("/v1/tasks", json={"items": [{"type": "t"}]}).json()["ids"][0]
    user = admin.post("/v1/users", json={"external_id": "ada", "role": "reader"}).json()["id"]
    role = admin.post("/v1/roles", json={"slug": "r", "name": "R"}).json()["id"]
    assert admin.put(f"/v1/roles/{role}/members/{user}").status_code == 200
    key = admin.get("/v1/keys").json()["items"][0]["id"]
    worker = site.sql("INSERT INTO workers (id, hostname, pid, org_id) VALUES (77, 'h', 1, $1) RETURNING id", site.org)[
        0
    ]["id"]
    assert admin.post("/v1/types/t/pause").status_code == 204
    schedule = {"name": "nightly", "entrypoint": "m.f", "cron": "@daily"}
    assert admin.post("/v1/schedules", json=schedule).status_code == 201
    site.sql(
        "INSERT INTO job_functions (org_id, entrypoint, module, name, documentation) VALUES ($1, 'm.f', 'm', 'f', '')",
        site.org,
    )
    site.sql(
        "INSERT INTO approvals (id, org_id, task_id, attempt, expires_at, title, role)"
        " VALUES (78, $1, $2, 0, now(), 'Pay?', 'writer')", site.org, int(task),
    )  # fmt: skip
    assert admin.put("/v1/secrets/token", json={"value": "sesame"}).status_code == 200
    assert admin.post("/v1/dags/deploy", json={"text": DAG}).json()["serves"]
    assert [dataset["name"] for dataset in admin.get("/v1/datasets").json()] == ["daily_sales"]
    channel = {"type": "webhook", "config": {"url": "https://example.org"}}
    assert admin.put("/v1/notifications/channels/ops", json=channel).status_code == 200
    assert admin.put("/v1/notifications/rules/all", json={"channels": ["ops"]}).status_code == 200
    [incident] = site.sql(
        "INSERT INTO incidents (org_id, rule, fingerprint, severity, title)"
        " VALUES ($1, 'job_failed', 'f', 'error', 't') RETURNING id",
        site.org,
    )
    site.sql(
        "INSERT INTO notifications (org_id, incident_id, channel, event) VALUES ($1, $2, 'ops', 'opened') RETURNING id",
        site.org,
        incident["id"],
    )
    return {
        "dag": "sales", "dataset": "daily_sales",
        "job_id": job, "task_id": task, "worker_id": str(worker), "user": user, "role": role, "key": key,
        "org": str(site.org), "name": "default", "table_id": "t1", "schedule": "nightly",
        "incident_id": str(incident["id"]),
        "function": "m.f", "approval_id": "78",
    }  # fmt: skip


OF_ONE = [
    (method, path)
    for method, path, permission in ROUTES
    if "{" in path and "{name" not in path and permission not in (Permission.OPERATOR, Permission.PUBLIC)
]
BODIES = {"PATCH": {"role": "admin"}}
BODIES_OF = {
    "/v1/datasets/{dataset}/readers": {"roles": []},
    "/v1/datasets/{dataset}/versions": {"range_start": 0, "range_end": 9},
    "/v1/schedules/{schedule}/fire": {},
    "/v1/functions/{function}/run": {},
    "/v1/approvals/{approval_id}/decide": {"approve": True},
    "/v1/approvals/{approval_id}/links": {"recipient": "eve"},
    "/v1/schedules/{schedule}/backfill": {"first": "2026-01-01", "last": "2026-01-02"},
    "/v1/incidents/{incident_id}/snooze": {},
    "/v1/dags/{dag}/backfill": {"first": "2026-01-01", "last": "2026-01-02"},
}
DAG = """
name: sales
jobs:
  - name: ingest
    activation: source
    source: {kind: manual}
    operator: python
    config: {function: "shop:fetch"}
    outputs: [{name: daily, freshness: {max_age: 1d}}]
publish: [{output: daily, name: daily_sales}]
"""


@pytest.mark.parametrize(("method", "path"), OF_ONE)
def test_resources_of_another_organisation_are_not_found(site, own_ids, method: str, path: str) -> None:
    """404 and not 403: whether an id exists is not disclosed."""
    with site.as_("other-admin").stream(
        method, fill(path, own_ids), json=BODIES_OF.get(path, BODIES.get(method))
    ) as response:
        assert response.status_code == 404
        assert response.read()
        assert "ours" not in response.text.lower()


@pytest.mark.parametrize("path", [path for method, path, _ in ROUTES if method == "GET" and "{" not in path])
def test_lists_contain_nothing_of_another_organisation(site, own_ids, path: str) -> None:
    if path in ("/v1/events", "/metrics", "/openapi.json", "/health", "/health/live", "/health/ready"):
        return
    own_text = site.as_("admin").get(path).text
    other_text = site.as_("other-admin").get(path).text
    for name, value in own_ids.items():
        if name in ("job_id", "task_id", "user", "role", "key", "worker_id"):
            assert f'"{value}"' not in other_text
    assert own_text != other_text or path in (
        "/v1/data-tests",
        "/v1/dead-letters",
        "/v1/dead-letters/groups",
        "/v1/objects",
        "/v1/outbox",
        "/v1/approvals",
    )


def test_other_organisations_changed_nothing(site, own_ids) -> None:
    """After the requests above, jobs, users, keys and roles are unchanged."""
    assert site.as_("admin").get(f"/v1/jobs/{own_ids['job_id']}").json()["status"] == "PENDING"
    assert site.as_("admin").get(f"/v1/users/{own_ids['user']}").json()["role"] == "reader"
    assert site.as_("admin").get(f"/v1/keys/{own_ids['key']}").json()["revoked_at"] is None
    assert len(site.as_("admin").get(f"/v1/roles/{own_ids['role']}/members").json()["items"]) == 1


def test_credential_cannot_choose_its_organisation(site) -> None:
    """Headers and body fields that name an organisation are ignored."""
    client = site.as_("admin", **{"X-Org-Id": str(site.other), "Org": str(site.other)})
    assert client.get("/v1/whoami").json()["org_id"] == str(site.org)
    refused = client.post("/v1/jobs", json={"name": "x", "entrypoint": "m.f", "org_id": str(site.other)})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["where"] == "body.org_id"


READING = """
name: spying
jobs:
  - name: copy
    activation: reactive
    operator: sql
    config: {query: "SELECT * FROM daily_sales"}
    inputs: [{dataset: daily_sales}]
    outputs: [copied]
"""


def test_dag_reads_only_datasets_that_its_author_may_read(site, own_ids) -> None:
    """A hidden dataset is reported as unpublished, also for a version that exists."""
    writer, unknown = site.as_("writer"), READING.replace("daily_sales", "unknown_dataset")

    def refused() -> None:
        hidden, missing = (writer.post("/v1/dags/deploy", json={"text": text}) for text in (READING, unknown))
        assert hidden.status_code == missing.status_code == 409, hidden.text
        problems = [answer.json() | {"request_id": None} for answer in (hidden, missing)]
        assert str(problems[0]).replace("daily_sales", "unknown_dataset") == str(problems[1])

    refused()
    assert writer.get("/v1/dags/spying/versions").status_code == 404
    assert site.as_("admin").post("/v1/dags/deploy", json={"text": READING}).status_code == 200
    refused()


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_diff_hides_jobs_of_a_dag_with_hidden_datasets(site, own_ids, role: str) -> None:
    other = {"text": DAG.replace("ingest", "fetch").replace("publish: [{output: daily, name: daily_sales}]", "")}
    assert "ingest" in site.as_("admin").post("/v1/dags/diff", json=other).text
    response = site.as_(role).post("/v1/dags/diff", json=other)
    assert response.status_code == 200
    assert "ingest" not in response.text
    assert not [change for change in response.json() if change["what"] == "job"]
