"""Secrets over HTTP and by commands: write-only, per organisation, and readable only with a lease."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.server.conftest import SECRETS_KEY
from tests.integration.server.http_worker import HttpWorker, enqueue

CANARY = "canary-of-the-vault"
DAG = """
name: {name}
jobs:
  - name: fetch
    activation: source
    source: {{kind: manual}}
    operator: {operator}
    secrets: {secrets}
    config: {config}
    outputs: [rows]
"""


def put(site, name: str, value: str, role: str = "admin", **more: Any):
    return site.as_(role).put(f"/v1/secrets/{name}", json={"value": value, **more})


def lease_of_dag(
    site, http_worker, name: str, secrets: str, operator: str = "python", config: str = ""
) -> dict[str, Any]:
    text = DAG.format(name=name, secrets=secrets, operator=operator, config=config or '{function: "shop:fetch"}')
    answer = site.as_("admin").post("/v1/dags/deploy", json={"text": text})
    assert answer.status_code == 200, answer.text
    job = site.as_("writer").post(f"/v1/dags/{name}/run").json()["id"]
    return next(task["lease"] for task in http_worker.claim(10) if task["job_id"] == job)


def test_secret_is_set_listed_and_deleted_without_showing_its_value(site) -> None:
    response = put(site, "vault", CANARY, host="api.example.com")
    assert response.status_code == 200, response.text
    assert response.json()["host"] == "https://api.example.com"
    [listed] = [secret for secret in site.as_("admin").get("/v1/secrets").json()["items"] if secret["name"] == "vault"]
    assert set(listed) == {"name", "host", "source", "created_at", "updated_at"}
    assert put(site, "vault", CANARY + "2").json()["host"] is None
    assert site.as_("admin").delete("/v1/secrets/vault").status_code == 204
    assert site.as_("admin").delete("/v1/secrets/vault").status_code == 404
    answers = [response.text, json.dumps(listed), site.as_("admin").get("/v1/audit").text]
    assert not any(CANARY in text for text in answers)
    entries = site.sql("SELECT action, target, detail::text FROM audit_log WHERE target = 'vault' ORDER BY id")
    assert [row["action"] for row in entries] == ["secret.set", "secret.set", "secret.remove"]


def test_secrets_are_paginated(site) -> None:
    for name in ("page-a", "page-b", "page-c"):
        put(site, name, "sesame")
    first = site.as_("admin").get("/v1/secrets", params={"limit": 1}).json()
    second = site.as_("admin").get("/v1/secrets", params={"limit": 1, "cursor": first["next"]}).json()
    assert first["items"][0]["name"] < second["items"][0]["name"]
    assert site.as_("admin").get("/v1/secrets", params={"cursor": "NQ"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/secrets/bad", {"value": {"x": CANARY}}), ("/v1/secrets/bad", {"value": CANARY, "hosts": "x"}),
        ("/v1/secrets/bad", {"value": CANARY, "host": "a/b"}), ("/v1/secrets/bad", {"value": [CANARY]}),
        ("/v1/secrets/bad", {"value": CANARY * 10_000}), ("/v1/secrets/bad", {"value": CANARY + "\x00"}),
        ("/v1/secrets/Bad", {"value": CANARY}), ("/v1/secrets/bad", {"value": "abc"}), ("/v1/secrets/bad", {}),
        ("/v1/secrets/bad", {"value": CANARY + "\ud800"}),
    ],
)  # fmt: skip
def test_refused_secret_value_is_not_in_the_response(site, path, body) -> None:
    answer = site.as_("admin").put(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert CANARY not in answer.text


def test_secrets_of_another_organisation_are_inaccessible(site) -> None:
    put(site, "ours", CANARY)
    other = site.as_("other-admin")
    assert "ours" not in [secret["name"] for secret in other.get("/v1/secrets").json()["items"]]
    assert other.delete("/v1/secrets/ours").status_code == 404
    assert other.put("/v1/secrets/ours", json={"value": "theirs"}).status_code == 200
    rows = site.sql("SELECT org_id FROM org_secrets WHERE name = 'ours'")
    assert {row["org_id"] for row in rows} == {site.org, site.other}
    for method, path in (("GET", ""), ("PUT", "/ours"), ("DELETE", "/ours")):
        answer = other.request(method, f"/v1/orgs/{site.org}/secrets{path}", json={"value": "theirs"})
        assert answer.status_code == 403
    operator = site.as_("operator-admin")
    assert operator.put(f"/v1/orgs/{site.org}/secrets/granted", json={"value": CANARY}).status_code == 200
    names = [secret["name"] for secret in operator.get(f"/v1/orgs/{site.org}/secrets").json()["items"]]
    assert {"ours", "granted"} <= set(names)
    assert operator.delete(f"/v1/orgs/{site.org}/secrets/granted").status_code == 204
    assert operator.put(f"/v1/orgs/{uuid4()}/secrets/x", json={"value": CANARY}).status_code == 404


def test_worker_reads_only_secrets_of_its_task(site, http_worker) -> None:
    put(site, "token", CANARY)
    put(site, "undeclared", "sesame")
    lease = lease_of_dag(site, http_worker, "leased", "{key: token}")
    assert http_worker.post("tasks/secrets", lease=lease, names=["key"]).json() == {
        "secrets": [{"name": "key", "value": CANARY, "host": None}]
    }
    for name in ("token", "undeclared", "absent"):
        refused = http_worker.post("tasks/secrets", lease=lease, names=["key", name])
        assert (refused.status_code, refused.json()["code"]) == (409, "secret"), refused.text
        assert CANARY not in refused.text
    assert http_worker.post("tasks/release", lease=lease).status_code == 204
    stale = http_worker.post("tasks/secrets", lease=lease, names=["key"])
    assert (stale.status_code, stale.json()["code"]) == (409, "lease_lost")


def test_worker_of_another_organisation_reads_no_secrets(site, http_worker) -> None:
    put(site, "token", CANARY)
    lease = lease_of_dag(site, http_worker, "crossed", "{key: token}")
    thief = HttpWorker(site, "other-worker")
    for forged in (lease, lease | {"token": str(uuid4())}, lease | {"attempt": 2}):
        answer = thief.post("tasks/secrets", lease=forged, names=["key"])
        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost"), answer.text
    enqueue(site, "own", role="other-writer")
    [own] = thief.claim(queues=["own"])
    answer = thief.post("tasks/secrets", lease=own["lease"], names=["token"])
    assert (answer.status_code, answer.json()["code"]) == (409, "secret"), answer.text
    assert CANARY not in answer.text
    for role in ("reader", "writer", "admin"):
        answer = site.as_(role).post("/v1/worker-api/tasks/secrets", json={"lease": lease, "names": ["key"]})
        assert answer.status_code == 403


def test_secret_with_a_host_is_sent_only_to_that_host(site, http_worker) -> None:
    put(site, "bound", CANARY, host="api.example.com")
    code = lease_of_dag(site, http_worker, "code", "[bound]")
    assert http_worker.post("tasks/secrets", lease=code, names=["bound"]).json()["code"] == "secret"
    for number, (url, status) in enumerate(
        [
            ("https://api.example.com/x", 200), ("https://API.example.com:443/", 200), ("http://api.example.com/", 409),
            ("https://api.example.com:8443/", 409), ("https://api.example.com.evil.example/", 409),
            ("https://evil.example/api.example.com", 409), ("https://evil.example/?u=https://api.example.com", 409),
        ]
    ):  # fmt: skip
        config = json.dumps({"url": url, "headers": {"X-Key": {"secret": "bound"}}})
        lease = lease_of_dag(site, http_worker, f"bound-{number}", "[bound]", "http_fetch", config)
        answer = http_worker.post("tasks/secrets", lease=lease, names=["bound"])
        assert answer.status_code == status, (url, answer.text)
        assert (CANARY in answer.text) == (status == 200)


def test_dag_with_an_environment_or_file_secret_is_refused(site) -> None:
    for reference in ("env:AAICLICK_DATABASE_URL", "env:POSTGRES_PASSWORD", "file:/proc/self/environ", "env:HOME"):
        text = DAG.format(
            name="thief", secrets=json.dumps({"key": reference}), operator="python", config='{function: "shop:fetch"}'
        )
        for path in ("/v1/dags/validate", "/v1/dags/deploy"):
            answer = site.as_("writer").post(path, json={"text": text})
            assert "aaiclick secrets set NAME" in answer.text, answer.text
            assert reference not in answer.text
    assert site.sql("SELECT 1 FROM job_definitions WHERE dag_name = 'thief'") == []


def test_secret_commands_work_locally_and_remotely(site, command) -> None:
    roles: list[tuple[str | None, list[str]]] = [
        (None, ["--org", "ours"]), ("admin", []), ("operator-admin", ["--org", "ours"]),
    ]  # fmt: skip
    for role, org in roles:
        done = command(
            "secrets", "set", "by-command", "--host", "api.example.com", *org, role=role, input_text=f"{CANARY}\n"
        )
        assert done.exit_code == 0, (done.output, done.exception)
        listed = command("secrets", "ls", *org, "-o", "json", role=role)
        [row] = [secret for secret in json.loads(listed.stdout) if secret["name"] == "by-command"]
        assert (row["host"], row["source"]) == ("https://api.example.com", "stored")
        assert CANARY not in done.output + listed.output
        assert command("secrets", "rm", "by-command", *org, role=role).exit_code == 0
    entries = site.sql("SELECT org_id, actor FROM audit_log WHERE target = 'by-command' AND action = 'secret.set'")
    assert len(entries) == 3
    assert command("secrets", "set", "empty", role="admin", input_text="").exit_code != 0
    assert (
        command("secrets", "set", "x", CANARY, role="admin", input_text="y").exit_code != 0
    )  # the value is not an argument
    assert site.sql("SELECT 1 FROM org_secrets WHERE name = 'by-command'") == []
    for role in (None, "admin"):
        refused = command("secrets", "set", "long", role=role, input_text=CANARY * 5_000)
        assert "value" in str(refused.exception)
        assert CANARY not in f"{refused.output}{refused.exception!r}"


def test_secret_keys_are_rotated_locally(site, command) -> None:
    put(site, "rotated", CANARY)
    assert len(command("secrets", "key", role=None).stdout.strip()) == len(SECRETS_KEY)
    done = command("secrets", "rotate", role=None)
    assert done.exit_code == 0, done.exception
    assert "Encrypted with the newest key" in done.output
    assert command("secrets", "rotate", role="operator-admin").exit_code != 0
    checked = {
        check["check"]: check["state"] for check in json.loads(command("doctor", "-o", "json", role=None).stdout)
    }
    assert checked["secrets"] == "ok"


def test_secret_values_are_not_in_database_log_or_openapi(site, http_worker) -> None:
    """Last in this file, after all uses of secrets."""
    put(site, "kept", CANARY)
    tables = site.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    rows = [site.sql(f'SELECT t::text AS row FROM "{table["tablename"]}" t') for table in tables]
    assert not [row["row"] for table_rows in rows for row in table_rows if CANARY in row["row"]]
    assert CANARY not in site.server.log.read_text()
    document = site.as_("reader").get("/openapi.json").json()
    shown = document["components"]["schemas"]["SetSecretRequest"]["properties"]["value"]
    assert shown["writeOnly"] is True
    assert "value" not in document["components"]["schemas"]["SecretSummary"]["properties"]
