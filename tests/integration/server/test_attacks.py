"""Hostile requests: all get 4xx responses, and neither responses nor the log contain secrets."""

from __future__ import annotations

import base64
import gzip
import json
import socket
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest

from tests.integration.server.hostile_inputs import call_tool

CANARY = "aai_canarycanary_" + "C4n4ry" * 7 + "x"
INJECTIONS = (
    "' OR 1=1 --",
    "'; DROP TABLE tasks; --",
    "$1",
    "%s",
    "\\",
    "{0}",
    "${jndi:ldap://x}",
    "\u202e",
    "ﾟ",
    "a" * 200,
)


def raw(site, request: bytes) -> bytes:
    """The response to raw bytes."""
    url = urlsplit(site.server.url)
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.sendall(request)
        with suppress(OSError):  # the server may have closed the connection
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(ConnectionResetError):  # the server closes the connection without reading the rest
            while part := connection.recv(65536):
                answer += part
    return answer


def token_of(header: dict, claims: dict, signature: str = "") -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims)]
    return ".".join([*parts, signature])


CREDENTIALS = {
    "no scheme": CANARY,
    "basic": "Basic " + base64.b64encode(b"admin:admin").decode(),
    "half a header": "Bearer",
    "nobody's key": f"Bearer {CANARY}",
    "too long": "Bearer " + "a" * 9000,
    "alg none": "Bearer " + token_of({"alg": "none"}, {"sub": "admin"}),
    "hs256": "Bearer " + token_of({"alg": "HS256", "kid": "x"}, {"sub": "admin"}, "c2ln"),
    "two dots": "Bearer a.b.c",
    "sql": "Bearer aai_'OR1=1--abc_" + "x" * 43,
    "percent": "Bearer aai_%%%%%%%%%%%%_" + "%" * 43,
    "wildcard": "Bearer aai_____________" + "_" * 43,
    "null": "Bearer aai_000000000000_" + "0" * 43,
    "unicode": "Bearer aai_" + "é" * 12 + "_" + "é" * 43,
}


@pytest.mark.parametrize("credential", CREDENTIALS.values(), ids=CREDENTIALS)
def test_invalid_credential_is_refused(site, credential: str) -> None:
    headers = [(b"Authorization", credential.encode())]
    response = httpx.get(f"{site.server.url}/v1/jobs", headers=headers, timeout=60)
    assert response.status_code == 401
    assert CANARY not in response.text
    assert response.headers["www-authenticate"].startswith("Bearer")


def test_invalid_credential_is_refused_on_public_routes(site) -> None:
    assert (
        httpx.get(f"{site.server.url}/health/live", headers={"Authorization": "Bearer x"}, timeout=60).status_code
        == 401
    )


def test_two_credentials_are_refused(site) -> None:
    header = f"Authorization: Bearer {site.keys['admin']}\r\n".encode()
    answer = raw(site, b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + header + b"\r\n")
    assert b" 401 " in answer.splitlines()[0]


def test_key_in_the_url_is_ignored(site) -> None:
    for name in ("key", "api_key", "access_token", "token"):
        assert site.as_(None).get("/v1/jobs", params={name: site.keys["admin"]}).status_code == 401


BODIES = {
    "not json": (b"{", 400),
    "empty": (b"", 422),
    "null": (b"null", 422),
    "a list": (b"[]", 422),
    "bad utf-8": (b'{"name": "\xff\xfe"}', 400),
    "utf-16": ('{"name": "x"}'.encode("utf-16"), 400),
    "deep": (b'{"name":"x","entrypoint":"m.f","kwargs":' + b'{"a":' * 1000 + b"1" + b"}" * 1001, 400),
    "deeper": (b"[" * 1_000_000, 400),
    "nan": (b'{"name": "x", "entrypoint": "m.f", "timeout_seconds": NaN}', 422),
    "infinite": (b'{"name": "x", "entrypoint": "m.f", "timeout_seconds": 1e999}', 422),
    "nan inside": (b'{"name": "x", "entrypoint": "m.f", "kwargs": {"x": NaN}}', 422),
    "huge number": (b'{"name": "x", "entrypoint": "m.f", "kwargs": {"x": ' + b"9" * 10_000 + b"}}", 400),
    "nul": (b'{"name": "a\\u0000b", "entrypoint": "m.f"}', 422),
    "half a pair": (b'{"name": "\\ud800", "entrypoint": "m.f"}', 422),
    "half a pair inside": (b'{"name": "x", "entrypoint": "m.f", "kwargs": {"x": "\\ud800"}}', 422),
    "long name": (b'{"name": "' + b"x" * 10_000 + b'", "entrypoint": "m.f"}', 422),
    "unknown field": (b'{"name": "x", "entrypoint": "m.f", "status": "COMPLETED"}', 422),
    "prototype": (b'{"name": "x", "entrypoint": "m.f", "__proto__": {}}', 422),
    "a path": (b'{"name": "x", "entrypoint": "../../etc/passwd"}', 422),
    "wrong types": (b'{"name": {"$gt": ""}, "entrypoint": ["m.f"]}', 422),
    "negative timeout": (b'{"name": "x", "entrypoint": "m.f", "timeout_seconds": -1}', 422),
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_malformed_body_is_refused(site, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    response = site.as_("writer").post("/v1/jobs", content=body, headers=headers)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert len(response.content) < 5_000


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/xml", ""]
)
def test_body_of_another_media_type_is_refused(site, media_type: str) -> None:
    """Pages of other sites can send these media types without a preflight request, but not JSON."""
    response = site.as_("writer").post("/v1/jobs", content=b'{"name": "x"}', headers={"Content-Type": media_type})
    assert response.status_code == 415


def test_large_body_is_refused_before_it_is_read(site) -> None:
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.keys['writer']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n"
    )
    assert b" 413 " in raw(site, head.encode()).splitlines()[0]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip"])
def test_compressed_body_is_not_decompressed(site, encoding) -> None:
    """The body is parsed as sent: a compressed bomb is invalid JSON."""
    bomb = gzip.compress(b"[" + b" " * (64 << 20) + b"]")
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    response = site.as_("writer").post("/v1/jobs", content=bomb, headers=headers)
    assert response.status_code in (400, 415, 422)
    body = gzip.compress(json.dumps({"name": "packed", "entrypoint": "m.f"}).encode())
    assert site.as_("writer").post("/v1/jobs", content=body, headers=headers).status_code in (400, 415, 422)


def test_large_chunked_body_is_refused(site) -> None:
    def parts():
        for _ in range(20):
            yield b" " * 1_000_000

    try:
        response = site.as_("writer").post("/v1/jobs", content=parts(), headers={"Content-Type": "application/json"})
        assert response.status_code == 413
    except httpx.WriteError:
        pass  # the server responded and closed the connection during the upload


SMUGGLED = {
    "two lengths": b"Content-Length: 0\r\nContent-Length: 5\r\n",
    "bad length": b"Content-Length: -1\r\n",
    "plus length": b"Content-Length: +5\r\n",
    "odd encoding": b"Transfer-Encoding: xchunked\r\n",
    "space before colon": b"X-Odd : 1\r\n",
    "bare line feed in a name": b"X\n-Odd: 1\r\n",
    "nul in a value": b"X-Odd: a\x00b\r\n",
    "folded": b"X-Odd: a\r\n b\r\n\x00: c\r\n",
}


@pytest.mark.parametrize("header", SMUGGLED.values(), ids=SMUGGLED)
def test_request_smuggling_is_refused(site, header: bytes) -> None:
    answer = raw(site, b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" + header + b"\r\nGET /v1/whoami HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4"), answer[:200]
    assert answer.count(b"HTTP/1.1 ") == 1


def test_endless_headers_are_refused(site) -> None:
    answer = raw(site, b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 200_000)
    assert answer.startswith(b"HTTP/1.1 4")


PATHS = [
    "/v1/tasks/..%2f..%2f..%2fetc%2fpasswd/log",
    "/v1/tasks/../../../../etc/passwd/log",
    "/v1/tasks/1%00/log",
    "/v1/tasks/-1/log",
    "/v1/tasks/0/log",
    "/v1/tasks/99999999999999999999/log",
    f"/jobs/{'9' * 5_000}",
    f"/incidents/{'9' * 5_000}",
    "/tasks/%D9%A1",
    "/v1/tasks/1e3/log",
    "/v1/tasks/0x10/log",
    "/v1/tasks/%D9%A1x/log",
    "/v1/objects/..%2fsystem",
    "/v1/objects/system.tables",
    "/v1/objects/t1%60%3bDROP",
    "/v1/objects/users",
    "/v1/users/not-a-uuid",
    "/v1/jobs/1;DROP",
    "/v1//jobs",
    "/V1/jobs",
    "/v1/jobs/",
    "/v1/.env",
    "/static/../../etc/passwd",
    "/v1/objects/named_..%2f..%2fx/rows",
    "/v1/objects/t9999999999999999999999/rows",
    "/docs",
    "/redoc",
]


@pytest.mark.parametrize("path", PATHS)
def test_malformed_path_is_not_found(site, path: str) -> None:
    response = site.as_("admin").get(path)
    assert response.status_code in (404, 422), response.text
    assert "root:" not in response.text


QUERIES = [
    ("/v1/jobs", {"cursor": "x"}), ("/v1/jobs", {"cursor": "e30"}), ("/v1/jobs", {"cursor": "W10"}),
    ("/v1/jobs", {"cursor": base64.urlsafe_b64encode(b"[" * 100).decode()}), ("/v1/jobs", {"cursor": "OTk5" * 20}),
    ("/v1/jobs", {"cursor": "InsxfSI"}), ("/v1/jobs", {"limit": "0"}), ("/v1/jobs", {"limit": "100000"}),
    ("/v1/jobs", {"status": "' OR 1=1"}), ("/v1/jobs", {"cursor": "\x00"}), ("/v1/keys", {"cursor": "MTI"}),
    ("/v1/dead-letters", {"cursor": "WyJ4Iiwx"}), ("/v1/dead-letters", {"cursor": "WyIyMDI2LTAxLTAxIiwgMV0"}),
    ("/v1/tasks", {"type": "\x00"}), ("/v1/tasks", {"job_id": "x"}), ("/v1/audit", {"cursor": "dHJ1ZQ"}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "query"), QUERIES)
def test_malformed_query_parameter_is_refused(site, path: str, query: dict[str, str]) -> None:
    response = site.as_("admin").get(path, params=query)
    assert response.status_code in (400, 422), response.text


@pytest.mark.parametrize("text", INJECTIONS)
def test_any_text_is_stored_unchanged(site, text: str) -> None:
    """Every free-text field returns what was stored."""
    writer = site.as_("writer")
    item = {
        "type": text, "queue": text, "idempotency_key": f"{text[:100]}{uuid4()}", "concurrency_key": text,
        "payload": {text: text},
    }  # fmt: skip
    [task_id] = writer.post("/v1/tasks", json={"items": [item]}).json()["ids"]
    shown = writer.get(f"/v1/tasks/{task_id}").json()
    assert (shown["type"], shown["queue"], shown["kwargs"]) == (text, text, {text: text})
    assert task_id in [task["id"] for task in writer.get("/v1/tasks", params={"type": text}).json()["items"]]
    job = writer.post("/v1/jobs", json={"name": text, "entrypoint": "m.f", "kwargs": {text: [text]}}).json()["id"]
    assert writer.get(f"/v1/jobs/{job}").json()["name"] == text
    assert site.sql("SELECT count(*) AS n FROM tasks")[0]["n"] > 0


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PATCH", "PROPFIND", "HEAD", "OPTIONS"])
def test_unsupported_method_is_refused(site, method: str) -> None:
    assert site.as_("admin").request(method, "/v1/keys").status_code in (404, 405)


def test_forged_request_id_is_not_logged(site) -> None:
    odd = 'x", "actor": "root'
    response = site.as_("reader").get("/v1/jobs", headers={"X-Request-ID": odd})
    assert response.headers["x-request-id"] != odd
    accepted = site.as_("reader").get("/v1/jobs", headers={"X-Request-ID": "my-id.1"})
    assert accepted.headers["x-request-id"] == "my-id.1"


def test_log_contains_no_secrets(site) -> None:
    """Last in this file: every attack above has been logged."""
    site.as_("admin").post("/v1/keys", json={"name": CANARY, "scopes": ["reader"], "canary": CANARY})
    site.as_("admin").get("/v1/jobs", params={"canary": CANARY})
    site.as_("admin").get(f"/v1/objects/{CANARY}")
    log = site.server.log.read_text()
    assert log.count("\n") > 100
    assert CANARY not in log
    assert "canary" not in log.lower()
    for key in site.keys.values():
        assert key.rpartition("_")[2] not in log
    assert site.endpoint.password not in log
    assert "Traceback" not in log
    for line in log.splitlines():
        if line.startswith("{"):
            assert json.loads(line)["level"] in ("info", "warning"), line


def test_queue_of_notifications_takes_no_items(site) -> None:
    item = {"type": "notify", "queue": "runtime:notifications", "payload": {"channel": "ops", "notifications": ["1"]}}
    response = site.as_("writer").post("/v1/tasks", json={"items": [item]})
    assert response.status_code == 422
    assert "queue of notifications" in response.json()["errors"][0]["what"]


def test_type_of_turns_takes_no_tasks(site) -> None:
    """Statements that run for all organisations read the arguments of these tasks."""
    task = {"entrypoint": "aaiclick.orchestration.waits.run_wait_for_turn"}
    arguments = {"job_id": "1_2"}
    for path, body in (
        ("/v1/tasks", {"items": [{**task, "type": "wait_for_turn", "payload": arguments}]}),
        ("/v1/jobs", {"name": "n", "tasks": [{**task, "key": "k", "name": "wait_for_turn", "kwargs": arguments}]}),
        ("/v1/schedules", {"name": "n", "item_type": "wait_for_turn", "every": "1d", "kwargs": arguments}),
    ):
        response = site.as_("writer").post(path, json=body)
        assert (response.status_code, "is reserved" in response.text) == (422, True), response.text


def test_unknown_time_zone_of_a_channel_is_refused(site) -> None:
    body = {"type": "webhook", "config": {"url": "https://example.com/"}, "timezone": "Mars/Olympus"}
    response = site.as_("admin").put("/v1/notifications/channels/ops", json=body)
    assert response.status_code == 422
    assert "not a time zone" in response.json()["errors"][0]["what"]


def ask_tool(site, role: str, tool: str, **arguments: object) -> httpx.Response:
    client = site.as_(role, accept="application/json")
    return client.post("/mcp", content=call_tool(tool, **arguments), headers={"Content-Type": "application/json"})


def test_tools_of_an_assistant_answer_nothing_of_another_organisation(site) -> None:
    writer = site.as_("writer")
    job_id = writer.post("/v1/jobs", json={"name": "canary-job", "entrypoint": "m.canary"}).json()["id"]
    task_id = writer.get("/v1/tasks", params={"job_id": job_id}).json()["items"][0]["id"]
    calls: list[tuple[str, dict[str, object]]] = [
        ("list_failures", {}), ("list_dead_letters", {}), ("list_datasets", {}), ("list_schedules", {}),
        ("list_workers_and_queues", {}), ("explain_failure", {"job_id": job_id}), ("list_tasks", {"job_id": job_id}),
        ("explain_task", {"task_id": task_id}), ("read_log", {"task_id": task_id}),
        ("query_datasets", {"sql": f"SELECT * FROM t{task_id}"}),
        ("query_datasets", {"sql": "SELECT * FROM system.users"}),
        ("cancel_job", {"job_id": job_id}), ("clear_task", {"task_id": task_id, "confirm": "0-0-0"}),
    ]  # fmt: skip
    for tool, arguments in calls:
        for role in ("other-admin", "operator-admin"):
            answer = ask_tool(site, role, tool, **arguments)
            assert (answer.status_code, "canary" in answer.text) == (200, False), (tool, answer.text)
            assert (
                not arguments
                or '"error' in answer.json()["result"]["content"][0]["text"]
                or (answer.json()["result"]["isError"])
            ), answer.text
        assert ask_tool(site, "other-worker", tool, **arguments).status_code == 403
    assert "canary" in ask_tool(site, "reader", "explain_failure", job_id=job_id).text
    assert writer.get(f"/v1/jobs/{job_id}").json()["status"] == "PENDING"


def test_functions_and_schedules_of_another_organisation_are_not_replaced(site) -> None:
    """A worker key registers modules of the same name, and a writer declares that they have no schedules."""
    function = {"entrypoint": "shared.f", "module": "shared", "name": "ours", "parameters": {}}
    schedule = {"name": "shared.f", "entrypoint": "shared.f", "cron": "@daily"}
    body = {"modules": ["shared"], "functions": [function], "schedules": [schedule]}
    path = "/v1/worker-api/workers/functions"
    assert site.as_("worker").post(path, json=body).status_code == 204
    assert site.as_("writer").post(path, json=body).status_code == 403
    other_body = body | {"functions": [function | {"name": "theirs"}], "schedules": []}
    assert site.as_("other-worker").post(path, json=other_body).status_code == 204
    empty = {"module": "shared", "schedules": []}
    assert site.as_("other-writer").post("/v1/schedules/sync", json=empty).json()["missing"] == []
    assert site.as_("other-worker").post(path, json=body | {"functions": [], "schedules": []}).status_code == 204
    assert site.as_("reader").get("/v1/functions/shared.f").json()["name"] == "ours"
    assert site.as_("reader").get("/v1/schedules/shared.f").json()["state"] == "active"
    assert site.as_("other-admin").get("/v1/functions/shared.f").status_code == 404


def test_events_and_keys_of_items_are_those_of_an_organisation(site) -> None:
    keys = {"debounce": "1h", "debounce_key": "k", "rate": "1/m", "rate_key": "k"}
    ids = []
    for role in ("writer", "other-writer"):
        body = {"items": [{"type": "mail", "payload": {"org": role}, **keys}]}
        ids += site.as_(role).post("/v1/tasks", json=body).json()["ids"]
    assert ids[0] != ids[1]
    assert site.as_("reader").get(f"/v1/tasks/{ids[0]}").json()["kwargs"] == {"org": "writer"}
    waiting = int(ids[0])
    insert = (
        "INSERT INTO waits (task_id, org_id, attempt, wait_type, name, key) VALUES ($1, $2, 0, 'event', 'paid', 'k')"
    )
    site.sql(f"{insert} RETURNING task_id", waiting, site.org)
    event = {"name": "paid", "key": "k", "payload": {}}
    assert site.as_("other-writer").post("/v1/events", json=event).json()["ended_waits"] == 0
    assert site.sql("SELECT task_id FROM waits WHERE task_id = $1", waiting)


def test_channel_of_another_organisation_is_neither_used_nor_changed(site) -> None:
    admin, other = site.as_("admin"), site.as_("other-admin")
    assert admin.put("/v1/secrets/hook", json={"value": "https://example.org/canary-token"}).status_code == 200
    config = {"url": {"secret": "hook"}}
    assert admin.put("/v1/notifications/channels/pager", json={"type": "slack", "config": config}).status_code == 200
    assert other.post("/v1/notifications/channels/pager/test").status_code == 404
    assert other.delete("/v1/notifications/channels/pager").status_code == 404
    rule = {"channels": ["pager"]}
    assert other.put("/v1/notifications/rules/all", json=rule).status_code in (404, 422)
    assert other.put("/v1/notifications/channels/own", json={"type": "slack", "config": config}).status_code == 200
    refused = other.post("/v1/notifications/channels/own/test")
    assert (refused.status_code, "canary" in refused.text) == (409, False), refused.text
    for role in ("reader", "writer"):
        assert "hook" not in site.as_(role).get("/v1/notifications/channels").text
        assert site.as_(role).post("/v1/notifications/channels/pager/test").status_code == 403
    assert admin.get("/v1/notifications/channels").json()[0]["config"] == config


def test_dag_of_the_same_name_is_deleted_in_one_organisation(site) -> None:
    text = (
        "name: twin\njobs:\n  - {name: a, activation: source, operator: http_fetch, source: {kind: manual},"
        " config: {url: 'https://example.com/'}, outputs: [o]}\n"
    )
    for role in ("admin", "other-admin"):
        assert site.as_(role).post("/v1/dags/deploy", json={"text": text}).status_code == 200
    assert site.as_("other-writer").delete("/v1/dags/twin").status_code == 403
    assert site.as_("other-admin").delete("/v1/dags/twin").status_code == 200
    assert site.as_("other-admin").delete("/v1/dags/twin").status_code == 404
    assert site.as_("reader").get("/v1/dags/twin/versions").status_code == 200
