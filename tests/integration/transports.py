"""How the workers of a test reach the queue: by PostgreSQL itself, or by a server and a key.

Every test that runs a worker runs over both (`conftest.pytest_generate_tests`), unless it is marked `directly` with one
of these reasons. `tests/unit/worker/test_transports.py` counts them.
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

from aaiclick.server.app import create_app
from aaiclick.server.service import Service
from aaiclick.settings import get_settings
from aaiclick.store.engine import connect
from aaiclick.store.keys import create_key
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import PostgresTarget, ServerTarget, WorkTarget

TRANSPORTS = ("direct", "server")

AFTER_THE_CLAIM = "the same code after the claim: what is shown happens within the process that runs the task"
ONE_ORGANISATION = "a worker of a server is of one organisation: the server's tests show the wall"
ONE_REQUEST = "over HTTP this commit is part of a request that is cut and killed by another place"
REASONS = (AFTER_THE_CLAIM, ONE_ORGANISATION, ONE_REQUEST)


def directly(reason: str) -> pytest.MarkDecorator:
    """Over one transport only, and why."""
    return pytest.mark.directly(reason)


def transports_of(mark: pytest.Mark | None) -> tuple[str, ...]:
    if mark is None:
        return TRANSPORTS
    if len(mark.args) != 1 or mark.args[0] not in REASONS:
        raise pytest.UsageError(f"'directly' has to give a reason of {__name__}, not {mark.args!r}.")
    return TRANSPORTS[:1]


@dataclass(frozen=True)
class Way:
    """Where a worker's work is, and how it is told so."""

    work: WorkTarget

    @property
    def upstream(self) -> str | tuple[str, int]:
        """What a proxy on this way has behind it."""
        if isinstance(self.work, PostgresTarget):
            return f"{self.work.host}/.s.PGSQL.{self.work.port}"
        return ("127.0.0.1", int(self.work.url.rpartition(":")[2]))

    def by(self, port: int) -> Way:
        """The same by a port of a proxy."""
        if isinstance(self.work, PostgresTarget):
            return Way(replace(self.work, host="127.0.0.1", port=port, options=(("sslmode", "disable"),)))
        return Way(replace(self.work, url=f"http://127.0.0.1:{port}"))

    @property
    def variables(self) -> dict[str, str]:
        if isinstance(self.work, PostgresTarget):
            return {"AAICLICK_DATABASE_URL": self.work.dsn}
        return {"AAICLICK_SERVER": self.work.url, "AAICLICK_API_KEY": self.work.key}

    @property
    def environment(self) -> dict[str, str]:
        """All that a worker knows: one of a server knows nothing but the server."""
        if isinstance(self.work, PostgresTarget):
            return dict(os.environ) | self.variables
        return bare(os.environ) | self.variables


def bare(environment: os._Environ[str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(("AAICLICK_", "POSTGRES_"))}


class Standing:
    """Stands for the service of one test after the other, so that the application is made once."""

    current: Service

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


class Host:
    """A thread of this process in which servers run, one at a time."""

    def __init__(self) -> None:
        self._standing = Standing()
        self._app: FastAPI | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    @contextlib.contextmanager
    def serve(self, target: PostgresTarget) -> Iterator[ServerTarget]:
        """A server by the settings of this process."""
        key = asyncio.run(_worker_key(target))
        opened = socket.create_server(("127.0.0.1", 0))
        service = self._standing.current = Service(get_settings(), target)
        self._app = self._app or create_app(cast("Service", self._standing))
        server = uvicorn.Server(uvicorn.Config(self._app, log_config=None, lifespan="on"))
        running = asyncio.run_coroutine_threadsafe(server.serve(sockets=[opened]), self._loop)
        yield ServerTarget(f"http://127.0.0.1:{opened.getsockname()[1]}", key)
        server.should_exit = True
        self._loop.call_soon_threadsafe(service.close_streams)
        running.result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_asyncgens(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _worker_key(target: PostgresTarget) -> str:
    connection = await connect(target)
    made = await create_key(connection, org_id=DEFAULT_ORG_ID, name="worker", scopes=["worker"])
    await connection.close()
    return made.text
