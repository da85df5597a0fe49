"""The server process: listening address, shutdown, health and the commands around it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.fork_server import FORK_SERVER
from tests.integration.server.conftest import environment_for, start_server


@pytest.fixture
def environment(aaiclick_postgres, aaiclick_stack, tmp_path):
    return environment_for(aaiclick_postgres, aaiclick_stack.connection.clickhouse_endpoint().url, tmp_path)


def run(environment, *arguments: str) -> subprocess.CompletedProcess[str]:
    return FORK_SERVER.run(list(arguments), environment)


def test_no_auth_requires_a_loopback_address(environment) -> None:
    result = run(environment, "server", "start", "--no-auth", "--host", "0.0.0.0", "--port", "0")
    assert result.returncode == 2
    assert "Without authentication the server listens on loopback only" in result.stderr


def test_port_in_use_is_reported(environment, site) -> None:
    port = site.server.url.rpartition(":")[2]
    result = run(environment, "server", "start", "--port", port)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert f"cannot listen at 127.0.0.1:{port}" in result.stderr


def test_first_key_is_printed_once_and_not_without_auth(environment, tmp_path) -> None:
    first = start_server(environment, tmp_path / "first.log")
    assert first.first_key is not None
    with httpx.Client(base_url=first.url, headers={"Authorization": f"Bearer {first.first_key}"}, timeout=60) as client:
        assert client.post("/v1/orgs", json={"name": "x", "slug": "x"}).status_code == 201
    assert first.stop() == 0
    second = start_server(environment, tmp_path / "second.log", "--no-auth")
    assert second.first_key is None
    assert "WITHOUT authentication" in second.log.read_text()
    with httpx.Client(base_url=second.url, timeout=60) as client:
        assert client.get("/v1/whoami").json()["actor"].startswith("anonymous")
        rebound = client.get("/v1/whoami", headers={"Host": "evil.example.org"})
        assert rebound.status_code == 403
        assert client.get("/v1/whoami", headers={"Host": "[::1]:80"}).status_code == 200
        _no_other_site_changes_anything(client, second.url)
    assert second.stop() == 0


def _no_other_site_changes_anything(client: httpx.Client, url: str) -> None:
    port = url.rpartition(":")[2]
    origins = ("https://evil.example.org", "null", "http://127.0.0.1:1", f"http://localhost:{port}", f"https{url[4:]}")
    foreign = [{"Origin": origin} for origin in origins]
    foreign += [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")]
    for headers in foreign:
        answer = client.post("/v1/queues/default/pause", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), headers
        assert "pages of other sites" in answer.json()["detail"]
        assert client.get("/v1/queues", headers=headers).status_code == 200
    for headers in ({}, {"Origin": url, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert client.post("/v1/queues/default/pause", headers=headers).status_code == 204, headers


def test_key_org_and_user_commands(environment) -> None:
    assert "acme" in run(environment, "org", "create", "acme", "--max-running", "2").stdout
    created = run(environment, "key", "create", "ci", "--org", "acme", "--scope", "writer", "--days", "1")
    assert re.search(r"aai_\w{12}_\w{43}", created.stdout)
    listed = run(environment, "key", "ls", "--org", "acme", "-o", "json")
    assert not re.search(r"aai_\w{12}_\w{43}", listed.stdout)
    key_id = re.search(r"[0-9a-f-]{36}", listed.stdout).group()
    assert "revoked" in run(environment, "key", "revoke", key_id, "--org", "acme").stderr
    user = run(environment, "user", "create", "sub|1", "--org", "acme", "--role", "admin", "-o", "json")
    assert "sub|1" in run(environment, "user", "ls", "--org", "acme").stdout
    user_id = re.search(r"[0-9a-f-]{36}", user.stdout).group()
    assert run(environment, "user", "rm", user_id, "--org", "acme").returncode == 0
    assert run(environment, "org", "pause", "nowhere").returncode == 3


def test_stop_closes_streams_and_finishes_requests(environment, tmp_path) -> None:
    server = start_server(environment, tmp_path / "server.log")
    headers = {"Authorization": f"Bearer {server.first_key}"}
    with (
        httpx.Client(base_url=server.url, headers=headers, timeout=60) as client,
        client.stream("GET", "/v1/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == ": hello"
        while next(lines) != "event: ready":
            pass
        stopped = threading.Thread(target=server.stop)
        stopped.start()
        assert [line for line in lines if line.startswith("event:")] == []  # and the stream ended
        stopped.join()
    assert server.process.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url + "/health/live", timeout=60)


def test_old_task_logs_are_deleted(environment, tmp_path) -> None:
    old, young = (Path(environment["AAICLICK_LOG_DIR"], name) for name in ("1.log", "2.log"))
    for path in (old, young):
        path.write_text("...")
    os.utime(old, (0, 0))
    server = start_server(environment, tmp_path / "server.log")
    while old.exists():
        time.sleep(0.05)
    assert young.exists()
    assert server.stop() == 0


def test_liveness_and_readiness_name_their_checks(site) -> None:
    assert site.as_(None).get("/health/live").json()["status"] == "ok"
    ready = site.as_(None).get("/health/ready").json()
    assert ready["ok"]
    assert {check["name"]: check["ok"] for check in ready["checks"]} == {
        "database": True, "workers": False, "stale_tasks": True, "events": True,
    }  # fmt: skip


def test_unreachable_database_gives_503_until_it_returns(
    environment, aaiclick_stack, aaiclick_postgres, tmp_path
) -> None:
    """Terminated connections, and a database that refuses connections for a while."""
    server = start_server(environment, tmp_path / "server.log")
    name, headers = aaiclick_postgres.database, {"Authorization": f"Bearer {server.first_key}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        assert client.get("/v1/jobs").status_code == 200
        aaiclick_stack.run(aaiclick_stack.run_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
        aaiclick_stack.run(
            aaiclick_stack.run_sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        )
        answers = [client.get("/v1/jobs") for _ in range(3)]
        assert {answer.status_code for answer in answers} == {503}
        assert answers[0].json()["code"] == "unavailable"
        assert name not in answers[0].text
        assert httpx.get(f"{server.url}/health/ready", timeout=60).status_code == 503
        health = httpx.get(f"{server.url}/health", timeout=60)
        assert (health.status_code, health.json()["checks"][0]["name"]) == (503, "database")
        aaiclick_stack.run(aaiclick_stack.run_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
        assert client.get("/v1/jobs").status_code == 200
    assert server.stop() == 0
