"""Another organisation's leases, workers and ids in every route of the worker protocol change and reveal nothing.

Routes and bodies come from the application, so that new routes and fields are covered.
"""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from aaiclick.api.worker_protocol import endpoints
from aaiclick.operations.actor import Permission
from aaiclick.server.routing import PERMISSION_EXTENSION
from aaiclick.store.engine.leases_and_outcomes import Lease
from tests.integration.server.http_worker import HttpWorker
from tests.integration.server.test_permissions import app

CANARY = "canary-of-the-victim"
DAG = """
name: victim
jobs:
  - name: fetch
    activation: source
    operator: http_fetch
    source: {kind: manual}
    config: {url: "https://example.com/canary-of-the-victim"}
    outputs: [raw]
publish: [raw]
"""


COLUMNS = """
    SELECT c.table_name, c.column_name
    FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
    WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
      AND c.column_name IN ('org_id', 'task_id', 'owner_id')
    ORDER BY 1, 2
"""


class Ids:
    """Values for request bodies: a lease, a worker and ids of resources."""

    def __init__(self, lease: dict[str, Any], worker: str, task: str, uuids: dict[str, str], table: str) -> None:
        self.lease = lease
        self.worker = worker
        self.task = task
        self.uuids = uuids
        self.table = table


def worker_routes() -> dict[str, type[BaseModel]]:
    """Paths and request schemas of the worker routes."""
    bodies: dict[str, type[BaseModel]] = {}
    for route in app().routes:
        assert isinstance(route, APIRoute)
        if (route.openapi_extra or {})[PERMISSION_EXTENSION] == Permission.WORKER.value:
            assert route.body_field is not None, route.path
            bodies[route.path] = route.body_field.field_info.annotation
    return bodies


def value_of(name: str, annotation: Any, ids: Ids) -> Any:
    """A value of a type, with ids filled in."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return value_of(name, parts[0], ids)
    if origin in (Union, types.UnionType):
        return value_of(name, next(part for part in parts if part is not type(None)), ids)
    if origin is Literal:
        return parts[0]
    if origin is list:
        return [value_of(name, parts[0], ids)]
    if origin is tuple:
        return [value_of(name, part, ids) for part in parts]
    if origin is dict or annotation is dict:
        return {}
    if annotation is Lease:
        return ids.lease
    if is_dataclass(annotation):
        hints = get_type_hints(annotation)
        return {field.name: value_of(field.name, hints[field.name], ids) for field in fields(annotation)}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return body_of(annotation, ids)
    return scalar(name, annotation, ids)


def scalar(name: str, annotation: Any, ids: Ids) -> Any:
    if annotation is UUID:
        return ids.uuids.get(name, ids.uuids["definition"])
    if annotation is bool:
        return False
    if "worker" in name:
        return ids.worker
    if name in ("table", "tables"):
        return ids.table
    if name.endswith(("id", "ids")) or name in ("edges", "awaits", "ticket"):
        return ids.task
    return 1 if annotation in (int, float) else "x"


def is_wanted(name: str, field: FieldInfo) -> bool:
    """Whether a field is required or carries an id."""
    text = str(field.annotation)
    carries = any(
        word in text for word in ("Lease", "CompleteRequest", "FailRequest", "TableReference", "Overdue", "UUID")
    )
    return field.is_required() or carries or name.endswith(("_id", "_ids", "ids"))


def body_of(model: type[BaseModel], ids: Ids) -> dict[str, Any]:
    hidden = {"effects", "build", "linked", "org_id", "job_id"}
    return {
        name: value_of(name, field.annotation, ids)
        for name, field in model.model_fields.items()
        if is_wanted(name, field) and name not in hidden
    }


@pytest.fixture(scope="module")
def victim(site) -> Ids:
    """A task of a DAG of the first organisation that its worker claimed, with a table and a log."""
    assert site.as_("admin").post("/v1/dags/deploy", json={"text": DAG}).status_code == 200
    assert site.as_("writer").post("/v1/dags/victim/run").status_code == 201
    http_worker = HttpWorker(site, "worker")
    (task,) = http_worker.claim()
    lease = task["lease"]
    table = f"t{lease['task_id']}"
    assert (
        http_worker.post("tasks/tables", action="reserve", tables=[{"table": table, "lease": lease}]).status_code == 200
    )
    assert http_worker.post("tasks/log", lease=lease, offset=0, text=CANARY).status_code == 204
    (row,) = site.sql("SELECT definition_id FROM tasks WHERE id = $1", int(lease["task_id"]))
    (dataset,) = site.sql(
        "SELECT v.id, d.id AS dataset FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_uuid "
        "WHERE d.org_id = $1",
        site.org,
    )
    uuids = {
        "definition": str(row["definition_id"]),
        "generation": str(dataset["id"]),
        "dataset": str(dataset["dataset"]),
    }
    return Ids(lease, http_worker.id, lease["task_id"], uuids, table)


@pytest.fixture(scope="module")
def attacker(site) -> HttpWorker:
    """A worker of the second organisation."""
    return HttpWorker(site, "other-worker")


@pytest.fixture(scope="module")
def leaseholder(site) -> tuple[HttpWorker, dict[str, Any]]:
    """A worker of the second organisation with a lease of its own."""
    http_worker = HttpWorker(site, "other-worker")
    site.as_("other-writer").post("/v1/jobs", json={"name": "own", "entrypoint": "m.f"})
    (task,) = http_worker.claim()
    return http_worker, task["lease"]


def renew_lease(site, worker_id: str, role: str = "worker") -> None:
    """Renew the lease of a worker, so that its task is not reassigned during the test."""
    renewal = {"worker_ids": [worker_id], "lease_seconds": 3600}
    assert site.as_(role).post("/v1/worker-api/workers/renew", json=renewal).status_code == 204


async def rows_of_victim(connection: Any, org_id: str, task_id: str) -> dict[str, Any]:
    """Rows of an organisation and a task, by table and column."""
    rows: dict[str, Any] = {}
    for table, column in await connection.fetch(COLUMNS):
        value = org_id if column == "org_id" else task_id
        row = "to_jsonb(x) - '{updated_at,last_heartbeat}'::text[]" if table == "job_definitions" else "x"
        text = f"SELECT ({row})::text FROM {table} x WHERE x.{column}::text = $1 ORDER BY 1"
        rows[f"{table}.{column}"] = [record[0] for record in await connection.fetch(text, value)]
    return rows


def state_of(site, victim: Ids) -> dict[str, Any]:
    """All rows of the first organisation and its task in all tables, and the log.

    Without heartbeats, which the loops of the server copy from tasks to their definitions.
    """
    state = site.run(lambda connection: rows_of_victim(connection, str(site.org), victim.task))
    for name in ("api_keys.org_id", "workers.org_id"):  # last-use times change
        state[name] = len(state[name])
    state["log"] = {path.name: path.read_bytes() for path in site.logs.rglob(f"*{victim.task}*")}
    return state


ROUTES = worker_routes()
ENDING = {
    endpoint.path
    for endpoint in (endpoints.COMPLETE, endpoints.FAIL, endpoints.RELEASE, endpoints.EXCHANGE, endpoints.SETTLE_WORKER)
}
"""Requests that end the attempt of their lease."""


def test_worker_routes_are_collected() -> None:
    collected = {endpoints.COMPLETE.path, endpoints.CLAIM.path, endpoints.SETTLE_WORKER.path, "/internal/task-fetch"}
    assert collected <= set(ROUTES)


@pytest.mark.parametrize("path", ROUTES)
def test_lease_of_another_organisation_changes_nothing(site, victim: Ids, attacker, path: str) -> None:
    """With the lease and the worker of the victim, and with its lease and the attacker's own worker."""
    renew_lease(site, victim.worker)
    before = state_of(site, victim)
    for worker in (victim.worker, attacker.id):
        ids = Ids(victim.lease, worker, victim.task, victim.uuids, victim.table)
        answer = attacker.post(path, **body_of(ROUTES[path], ids))
        assert answer.status_code < 500, answer.text
        assert CANARY not in answer.text
        if answer.status_code not in (404, 409):
            assert is_empty(answer, victim, worker), (answer.status_code, answer.text)
    assert state_of(site, victim) == before


@pytest.mark.parametrize("path", ROUTES)
def test_own_lease_with_ids_of_another_organisation_changes_nothing(site, victim: Ids, leaseholder, path: str) -> None:
    http_worker, own = leaseholder
    if endpoints.ALIASES.get(path, path) in ENDING:
        return  # these end the attempt; the test above covers their ids
    renew_lease(site, victim.worker)
    renew_lease(site, http_worker.id, "other-worker")
    before = state_of(site, victim)
    ids = Ids(own, http_worker.id, victim.task, victim.uuids, victim.table)
    answer = http_worker.post(path, **body_of(ROUTES[path], ids))
    assert answer.status_code < 500, answer.text
    assert CANARY not in answer.text
    assert state_of(site, victim) == before
    assert http_worker.post("tasks/start", leases=[own]).json() == {"ids": [own["task_id"]]}


def is_empty(answer: Any, victim: Ids, worker: str) -> bool:
    """Whether a 2xx response neither accepts nor reveals anything of the victim."""
    if answer.status_code in (204, 422):
        return worker != victim.worker or answer.status_code == 422
    content = answer.json()
    assert answer.status_code == 200
    shown = {
        name: value for name, value in content.items() if name != "lost"
    }  # a heartbeat returns the ids that were sent
    return victim.task not in str(shown) and victim.worker not in str(shown)
