"""Every route and everybody who may ask: the answer is the one that the route declares."""

from __future__ import annotations

from uuid import uuid4

import pytest
from fastapi.routing import APIRoute

from aaiclick.server.app import create_app
from aaiclick.server.permissions import Permission, permissions_of
from aaiclick.server.routes import ALL
from aaiclick.server.routing import MARK
from aaiclick.server.service import Service
from aaiclick.settings import Settings
from aaiclick.targets import PostgresTarget

ROUTES = [(route.method, route.path, route.permission) for routes in ALL for route in routes.declared]
SOMEBODY = ("reader", "writer", "admin", "worker", "other-admin", "operator-reader", "operator-admin")
NOBODYS = {
    "job_id": "1", "task_id": "1", "worker_id": "1", "name": "nobodys", "table_id": "t1", "org_id": str(uuid4()),
    "user_id": str(uuid4()), "role_id": str(uuid4()), "key_id": str(uuid4()), "dag": "nobodys", "job": "nobodys",
    "dataset": "nobodys",
}  # fmt: skip


def fill(path: str, values: dict[str, str]) -> str:
    return path.replace(":path", "").format(**values)


def ask(client, method: str, path: str) -> int:
    """The status alone: some answers are streams that do not end."""
    with client.stream(method, path) as response:
        return response.status_code


def app():
    return create_app(Service(Settings(), PostgresTarget("nowhere", 1, "nobody", "none")))


async def test_every_route_declares_its_permission() -> None:
    served = {(method, route.path) for route in app().routes for method in getattr(route, "methods", ["?"])}
    assert served == {(method, path) for method, path, _ in ROUTES}
    assert all(isinstance(route, APIRoute) and route.openapi_extra[MARK] for route in app().routes)


async def test_a_route_without_a_permission_cannot_be_served() -> None:
    async def forgotten() -> None: ...

    with pytest.raises(KeyError, match=MARK):
        app().add_api_route("/v1/forgotten", forgotten)


@pytest.mark.parametrize(("method", "path", "permission"), ROUTES)
def test_the_guard_answers_as_declared(site, method: str, path: str, permission: Permission) -> None:
    url = fill(path, NOBODYS)
    assert (ask(site.as_(None), method, url) == 401) == (permission is not Permission.PUBLIC)
    for who in SOMEBODY:
        allowed = permissions_of([who.rpartition("-")[2]], operates=who.startswith("operator"))
        status = ask(site.as_(who), method, url)
        assert (status == 403) == (permission not in allowed), (who, status)
        assert status != 401
        assert status < 500 or path == "/health"  # 503: the site has no worker


@pytest.fixture(scope="module")
def ours(site):
    """Something of each kind in our organisation."""
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
    assert admin.put("/v1/secrets/token", json={"value": "sesame"}).status_code == 200
    assert admin.post("/v1/dags/deploy", json={"text": DAG}).json()["serves"]
    assert [each["name"] for each in admin.get("/v1/datasets").json()] == ["daily_sales"]
    return {
        "dag": "sales", "dataset": "daily_sales",
        "job_id": job, "task_id": task, "worker_id": str(worker), "user_id": user, "role_id": role, "key_id": key,
        "org_id": str(site.org), "name": "default", "table_id": "t1",
    }  # fmt: skip


OF_ONE = [
    (method, path)
    for method, path, permission in ROUTES
    if "{" in path and "{name" not in path and permission not in (Permission.OPERATOR, Permission.PUBLIC)
]
BODIES = {"PUT": {"role": "admin"}}
BODIES_OF = {
    "/v1/datasets/{dataset}/readers": {"roles": []},
    "/v1/datasets/{dataset}/versions": {"range_start": 0, "range_end": 9},
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
    outputs: [daily]
publish: [{output: daily, name: daily_sales}]
"""


@pytest.mark.parametrize(("method", "path"), OF_ONE)
def test_what_is_anothers_does_not_exist(site, ours, method: str, path: str) -> None:
    """404 and not 403: whether an id is taken is nobody else's business."""
    with site.as_("other-admin").stream(
        method, fill(path, ours), json=BODIES_OF.get(path, BODIES.get(method))
    ) as response:
        assert response.status_code == 404
        assert response.read()
        assert "ours" not in response.text.lower()


@pytest.mark.parametrize("path", [path for method, path, _ in ROUTES if method == "GET" and "{" not in path])
def test_no_listing_shows_anything_of_another_org(site, ours, path: str) -> None:
    if path in ("/v1/events", "/metrics", "/openapi.json", "/health", "/health/live", "/health/ready"):
        return
    mine = site.as_("admin").get(path).text
    theirs = site.as_("other-admin").get(path).text
    for name, value in ours.items():
        if name in ("job_id", "task_id", "user_id", "role_id", "key_id", "worker_id"):
            assert f'"{value}"' not in theirs
    assert mine != theirs or path in ("/v1/dead-letters", "/v1/dead-letters/groups", "/v1/objects", "/v1/outbox")


def test_nothing_of_ours_was_changed_by_others(site, ours) -> None:
    """After all those attempts: jobs run on, users, keys and roles are as they were."""
    assert site.as_("admin").get(f"/v1/jobs/{ours['job_id']}").json()["status"] == "PENDING"
    assert site.as_("admin").get(f"/v1/users/{ours['user_id']}").json()["role"] == "reader"
    assert site.as_("admin").get(f"/v1/keys/{ours['key_id']}").json()["revoked_at"] is None
    assert len(site.as_("admin").get(f"/v1/roles/{ours['role_id']}/members").json()["items"]) == 1


def test_a_credential_cannot_choose_its_organisation(site) -> None:
    """Neither a header nor a field of the body is heard."""
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


def test_a_dag_reads_of_other_dags_what_its_author_may_read(site, ours) -> None:
    """A hidden dataset is one that nobody publishes, also in a version that is there already."""
    writer, unknown = site.as_("writer"), READING.replace("daily_sales", "unheard_of")

    def refused() -> None:
        hidden, missing = (writer.post("/v1/dags/deploy", json={"text": text}) for text in (READING, unknown))
        assert hidden.status_code == missing.status_code == 409, hidden.text
        told = [answer.json() | {"request_id": None} for answer in (hidden, missing)]
        assert str(told[0]).replace("daily_sales", "unheard_of") == str(told[1])

    refused()
    assert writer.get("/v1/dags/spying/versions").status_code == 404
    assert site.as_("admin").post("/v1/dags/deploy", json={"text": READING}).status_code == 200
    refused()


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_a_diff_tells_no_jobs_of_a_dag_whose_datasets_are_hidden(site, ours, role: str) -> None:
    other = {"text": DAG.replace("ingest", "fetch").replace("publish: [{output: daily, name: daily_sales}]", "")}
    assert "ingest" in site.as_("admin").post("/v1/dags/diff", json=other).text
    told = site.as_(role).post("/v1/dags/diff", json=other)
    assert told.status_code == 200
    assert "ingest" not in told.text
    assert not [each for each in told.json() if each["what"] == "job"]
