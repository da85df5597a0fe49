"""Fixtures for moto and for both gateways; worker tests run over both unless marked `postgres_only`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from aaiclick.orchestration import handler_registry
from aaiclick.settings import get_settings
from tests.integration.gateways import GatewayEndpoint, ServerThread, gateway_kinds
from tests.integration.moto_server import moto_server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gateway_kind" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("postgres_only")
        metafunc.parametrize("gateway_kind", gateway_kinds(mark), indirect=True)


@pytest.fixture(autouse=True)
def forget_handlers() -> Iterator[None]:
    """Handlers of modules that a test has removed would meet those of the same type in a later test."""
    yield
    registered = handler_registry._handlers  # pyright: ignore[reportPrivateUsage]
    for task_type in [name for name, function in registered.items() if function.__module__ not in sys.modules]:
        del registered[task_type]


@pytest.fixture
def hook() -> Iterator[tuple[str, list[bytes]]]:
    """Address of a server that accepts every message, and the messages."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    received: list[bytes] = []
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """Address of a moto server; users of the fixture reset it."""
    yield from moto_server()


@pytest.fixture
def gateway_kind(request) -> str:
    """`direct` or `server`."""
    return request.param


@pytest.fixture(scope="session")
def server_thread() -> Iterator[ServerThread]:
    server_thread = ServerThread()
    yield server_thread
    server_thread.close()


@pytest.fixture
def gateway(
    gateway_kind, server_thread, aaiclick_env, aaiclick_postgres, tmp_path, monkeypatch
) -> Iterator[GatewayEndpoint]:
    """Gateway of the workers of this test."""
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    get_settings.cache_clear()
    if gateway_kind == "direct":
        yield GatewayEndpoint(aaiclick_postgres)
        return
    with server_thread.serve(aaiclick_postgres) as server:
        yield GatewayEndpoint(server)
