"""Gateways of workers in tests: PostgreSQL, or a server and a key.

Every worker test runs over both (`conftest.pytest_generate_tests`), unless it is marked `postgres_only` with one of
these reasons. `tests/unit/worker/test_gateways.py` counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
import uvicorn
from fastapi import FastAPI

from aaiclick.server.analysis_pool import AnalysisPool
from aaiclick.server.app import create_app
from aaiclick.server.app_state import AppState
from aaiclick.server_addresses import PostgresEndpoint, ServerEndpoint, WorkEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy.api_keys import create_key

GATEWAY_KINDS = ("direct", "server")

AFTER_CLAIM = "the code under test runs after the claim and is the same for both gateways"
ONE_ORGANISATION = "an HTTP worker belongs to one organisation: isolation is tested with the server"
ONE_REQUEST = "over HTTP this commit is part of a request with its own failpoint"
NO_CHILDREN = "an HTTP worker has no access to the database: its tasks submit no jobs"
REASONS = (AFTER_CLAIM, ONE_ORGANISATION, ONE_REQUEST, NO_CHILDREN)


def postgres_only(reason: str) -> pytest.MarkDecorator:
    """Mark a test to run over the PostgreSQL gateway only, with a reason."""
    return pytest.mark.postgres_only(reason)


def gateway_kinds(mark: pytest.Mark | None) -> tuple[str, ...]:
    if mark is None:
        return GATEWAY_KINDS
    if len(mark.args) != 1 or mark.args[0] not in REASONS:
        raise pytest.UsageError(f"'postgres_only' has to give a reason of {__name__}, not {mark.args!r}.")
    return GATEWAY_KINDS[:1]


@dataclass(frozen=True)
class GatewayEndpoint:
    """Endpoint of the queue, and the environment of a worker that uses it."""

    work: WorkEndpoint

    @property
    def upstream(self) -> str | tuple[str, int]:
        """Address for a proxy to forward to."""
        if isinstance(self.work, PostgresEndpoint):
            return f"{self.work.host}/.s.PGSQL.{self.work.port}"
        return ("127.0.0.1", int(self.work.url.rpartition(":")[2]))

    def via_port(self, port: int) -> GatewayEndpoint:
        """The same endpoint through a proxy."""
        if isinstance(self.work, PostgresEndpoint):
            return GatewayEndpoint(replace(self.work, host="127.0.0.1", port=port, options=(("sslmode", "disable"),)))
        return GatewayEndpoint(replace(self.work, url=f"http://127.0.0.1:{port}"))

    @property
    def variables(self) -> dict[str, str]:
        if isinstance(self.work, PostgresEndpoint):
            return {"AAICLICK_DATABASE_URL": self.work.dsn}
        return {"AAICLICK_SERVER": self.work.url, "AAICLICK_API_KEY": self.work.key}

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a worker; an HTTP worker has no settings but the server and its key."""
        if isinstance(self.work, PostgresEndpoint):
            return dict(os.environ) | self.variables
        return without_own_variables(os.environ) | self.variables


def without_own_variables(environment: os._Environ[str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(("AAICLICK_", "POSTGRES_"))}


class AppStateProxy:
    """Forwards to the AppState of the current test, so that the application is created once."""

    current: AppState

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


class LazyAnalysisPool(AnalysisPool):
    """Starts its first process with the first call, since most worker tests analyse nothing."""

    async def warm_up(self) -> None:
        """Start no process."""


class ServerThread:
    """A thread that runs one server at a time."""

    def __init__(self) -> None:
        self._state_proxy = AppStateProxy()
        self._app: FastAPI | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    @contextlib.contextmanager
    def serve(self, endpoint: PostgresEndpoint) -> Iterator[ServerEndpoint]:
        """Run a server with the settings of this process."""
        key = asyncio.run(_worker_key(endpoint))
        listener = socket.create_server(("127.0.0.1", 0))
        app_state = self._state_proxy.current = AppState(get_settings(), endpoint)
        app_state.analysis_pool = LazyAnalysisPool()
        self._app = self._app or create_app(cast("AppState", self._state_proxy))
        server = uvicorn.Server(uvicorn.Config(self._app, log_config=None, lifespan="on"))
        running = asyncio.run_coroutine_threadsafe(server.serve(sockets=[listener]), self._loop)
        yield ServerEndpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", key)
        server.should_exit = True
        self._loop.call_soon_threadsafe(app_state.close_streams)
        running.result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_asyncgens(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _worker_key(endpoint: PostgresEndpoint) -> str:
    connection = await connect(endpoint)
    key = await create_key(connection, org_id=DEFAULT_ORG_ID, name="worker", scopes=["worker"])
    await connection.close()
    return key.text
