"""Slow, large and ambiguous requests: time limits, memory of unfinished bodies, authentication before reading."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integration.server.conftest import Site, premises, with_connection
from tests.integration.server.conftest import _populate as populate
from tests.integration.server.test_event_loop import wait_for_url

BODY_BYTES = 2_000_000
LIMITS = {
    "aaiclick.server.connection_time_limits.HEADER_SECONDS": 1.0,
    "aaiclick.server.connection_time_limits.DRAIN_SECONDS": 0.5,
    "aaiclick.server.request_body.BODY_SECONDS": 1.0,
    "aaiclick.server.request_body.MIN_BYTES_PER_SECOND": 1_000_000_000,
}


@pytest.fixture(scope="module")
def site(aaiclick_stack, _aaiclick_template, tmp_path_factory) -> Iterator[Site]:
    """A server with short time limits and a small body limit."""
    directory = tmp_path_factory.mktemp("limits")
    with premises(aaiclick_stack, directory) as server_directory:
        org_id, other_org_id, keys = asyncio.run(with_connection(server_directory.endpoint, populate))
        environment = server_directory.environment | {
            "CALLBACK_LOG": str(directory / "callbacks.log"),
            "LIMITS": json.dumps(LIMITS),
            "AAICLICK_SERVER_BODY_BYTES": str(BODY_BYTES),
        }
        with (directory / "server.log").open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.server.instrumented_server"],
                env=environment, stdout=stream, stderr=stream,
            )  # fmt: skip
        try:
            server: Any = type(
                "Server", (), {"url": wait_for_url(process, directory / "server.log"), "process": process}
            )
            site = Site(
                server, server_directory.endpoint, server_directory.logs, environment, org_id, other_org_id, keys,
                aaiclick_stack,
            )  # fmt: skip
            yield site
            for client in site.clients.values():
                client.close()
        finally:
            process.terminate()
            process.wait(30)


def connect(site: Site) -> socket.socket:
    url = urlsplit(site.server.url)
    return socket.create_connection((url.hostname, url.port), timeout=30)


def head(site: Site, role: str | None, length: int, path: str = "/v1/jobs", more: str = "") -> bytes:
    credential = "" if role is None else f"Authorization: Bearer {site.keys[role]}\r\n"
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\n{credential}{more}"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def read_all(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    answer = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            answer += part
    return answer


def read_status(connection: socket.socket) -> int:
    """The status of one response, with the connection left open."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = connection.recv(65536)
        assert part, answer
        answer += part
    return int(answer.split()[1])


def memory_of(site: Site) -> int:
    status = Path(f"/proc/{site.server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) * 1024


@pytest.mark.parametrize(("role", "status"), [(None, 401), ("reader", 403)])
def test_unauthorised_request_is_refused_before_its_body_is_read(site: Site, role: str | None, status: int) -> None:
    """The response comes before any of the body is sent."""
    with connect(site) as connection:
        connection.sendall(head(site, role, 1_000_000))
        assert read_status(connection) == status


def test_idle_connection_is_closed(site: Site) -> None:
    with connect(site) as connection:
        assert read_all(connection) == b""


def test_slow_head_gets_408(site: Site) -> None:
    with connect(site) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "too_slow"


def test_slow_second_head_gets_408(site: Site) -> None:
    with connect(site) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_status(connection) == 200
        connection.sendall(b"GET /he")
        assert b"HTTP/1.1 408 " in read_all(connection)


def test_slow_body_gets_408(site: Site) -> None:
    with connect(site) as connection:
        connection.sendall(head(site, "writer", 100) + b'{"name": ')
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()


def test_unread_body_is_discarded_for_a_limited_time(site: Site) -> None:
    with connect(site) as connection:
        connection.sendall(head(site, None, 1_900_000))
        assert read_status(connection) == 401
        assert read_all(connection) is not None  # the server closes the connection


def test_small_unread_body_keeps_the_connection(site: Site) -> None:
    with connect(site) as connection:
        connection.sendall(head(site, None, 100) + b" " * 100)
        assert read_status(connection) == 401
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 200 " in read_all(connection)


def test_unfinished_bodies_of_one_credential_are_bounded(site: Site) -> None:
    """A third large body is refused while two are unfinished, and accepted afterwards."""
    before = memory_of(site)
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(site)) for _ in range(40)]
        for connection in connections:
            with suppress(ConnectionError):
                connection.sendall(head(site, "writer", BODY_BYTES) + b" " * (BODY_BYTES - 1))
        statuses = [int((read_all(connection) or b"- 0").split()[1]) for connection in connections]
    assert set(statuses) <= {429, 408, 503, 0}
    assert 429 in statuses
    assert memory_of(site) - before < 40_000_000
    body = json.dumps({"name": "x", "entrypoint": "m.f", "kwargs": {"x": "y" * (BODY_BYTES - 1000)}})
    response = site.as_("writer").post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 201


def test_anonymous_bodies_have_a_small_limit(site: Site) -> None:
    path = f"/v1/webhooks/{site.org}/dag/job"
    with connect(site) as connection:
        connection.sendall(head(site, None, 1_000_001, path))
        assert read_status(connection) == 413


def test_content_length_with_transfer_encoding_is_refused(site: Site) -> None:
    """Otherwise a proxy and the server could disagree about the end of the request."""
    request = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.keys['writer']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        "0\r\n\r\nGET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    with connect(site) as connection:
        connection.sendall(request.encode())
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_malformed_form_is_refused(site: Site) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for form in (b"&".join(b"a=1" for _ in range(3000)), b"a=\xff"):
        assert httpx.post(f"{site.server.url}/sign-in", content=form, headers=headers, timeout=30).status_code == 400


def test_non_ascii_csrf_token_is_refused(site: Site) -> None:
    client = httpx.Client(base_url=site.server.url, timeout=30)
    with client:
        client.get("/sign-in")
        assert client.post("/sign-in", data={"csrf": "é" * 64, "credential": "x"}).status_code == 403
