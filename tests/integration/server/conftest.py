"""Fixtures: a server process on real databases per test module, and API keys of every scope."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy import api_keys, orgs
from tests.fork_server import FORK_SERVER, ForkedProcess
from tests.integration.server.browser import Browser
from tests.integration.server.http_worker import HttpWorker

ROLES = ("reader", "writer", "admin", "worker")
OURS = ("AAICLICK_", "POSTGRES_", "WORKER_", "JOB_")
SECRETS_KEY = "c2VjcmV0cyBvZiB0ZXN0cywgMzIgYnl0ZXMgb2Yga2U="


@dataclass
class Server:
    """A running `aaiclick server start`."""

    process: ForkedProcess
    url: str
    log: Path
    first_key: str | None

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@dataclass
class Site:
    """A server with its database, two organisations besides the default one, and API keys of all three."""

    server: Server
    endpoint: PostgresEndpoint
    logs: Path
    environment: dict[str, str]
    org: UUID
    other: UUID
    keys: dict[str, str] = field(repr=False)
    stack: Any = field(repr=False)
    clients: dict[str, httpx.Client] = field(default_factory=dict, repr=False)

    def as_(self, role: str | None, **headers: str) -> httpx.Client:
        """Return a client with the key of a role.

        Roles are `reader`, `writer`, `admin`, `worker` of the first org, `other-admin` etc. of the second,
        `operator-admin` etc. of the default one; None has no key.
        """
        credential = {} if role is None else {"Authorization": f"Bearer {self.keys[role]}"}
        name = f"{role} {headers}"
        if name not in self.clients:
            self.clients[name] = httpx.Client(base_url=self.server.url, headers=credential | headers, timeout=30)
        return self.clients[name]

    def sql(self, statement: str, *arguments: Any) -> list[Any]:
        return self.run(lambda connection: connection.fetch(statement, *arguments))

    def run(self, work: Callable[[Any], Any]) -> Any:
        return self.stack.run(self.stack.use_connection(self.endpoint.database, work))


async def with_connection(endpoint: PostgresEndpoint, work: Callable[[Any], Any]) -> Any:
    connection = await connect(endpoint)
    try:
        return await work(connection)
    finally:
        await connection.close()


def start_server(environment: dict[str, str], log: Path, *options: str) -> Server:
    """Start a server and wait until it responds."""
    with log.open("wb") as stream:
        process = FORK_SERVER.start(["server", "start", "--port", "0", *options], environment, None, stream, stream)
    while True:
        output = log.read_text()
        time.sleep(0.05)
        match = re.search(r"listening on (http://\S+:\d+)", output)
        if match:
            break
        assert process.poll() is None, output
    url = match.group(1)
    httpx.get(
        f"{url}/health/live", timeout=30
    ).raise_for_status()  # the socket is open: the request waits for the server
    first = re.search(r"aai_\w+", output)
    return Server(process, url, log, first.group() if first else None)


def environment_for(endpoint: PostgresEndpoint, clickhouse_url: str, logs: Path) -> dict[str, str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return bare | {
        "AAICLICK_DATABASE_URL": endpoint.dsn,
        "AAICLICK_CLICKHOUSE_URL": clickhouse_url,
        "AAICLICK_LOG_DIR": str(logs),
        "AAICLICK_SECRETS_KEY": SECRETS_KEY,
    }


@dataclass
class ServerSetup:
    """A database, a directory and the environment variables for a server."""

    endpoint: PostgresEndpoint
    directory: Path
    logs: Path
    environment: dict[str, str]


@contextmanager
def premises(stack: Any, directory: Path) -> Iterator[ServerSetup]:
    database = stack.run(stack.take_database())
    endpoint = stack.connection.postgres_endpoint().with_database(database)
    logs = directory / "logs"
    logs.mkdir()
    yield ServerSetup(
        endpoint, directory, logs, environment_for(endpoint, stack.connection.clickhouse_endpoint().url, logs)
    )
    stack.run(stack.return_database(database))


async def make_keys(connection: Any, org_ids: dict[str, UUID]) -> dict[str, str]:
    """API keys of every role for each organisation, by prefix and role."""
    return {
        prefix + role: (await api_keys.create_key(connection, org_id=org, name=role, scopes=[role])).text
        for prefix, org in org_ids.items()
        for role in ROLES
    }


async def _populate(connection: Any) -> tuple[UUID, UUID, dict[str, str]]:
    org_id = (await orgs.create_org(connection, name="Ours", slug="ours")).id
    other_org_id = (await orgs.create_org(connection, name="Other", slug="other")).id
    return (
        org_id,
        other_org_id,
        await make_keys(connection, {"": org_id, "other-": other_org_id, "operator-": DEFAULT_ORG_ID}),
    )


@pytest.fixture(scope="module")
def site(aaiclick_stack, _aaiclick_template, tmp_path_factory) -> Iterator[Site]:
    """The server of a test module."""
    with premises(aaiclick_stack, tmp_path_factory.mktemp("server")) as server_directory:
        org_id, other_org_id, keys = asyncio.run(with_connection(server_directory.endpoint, _populate))
        server = start_server(server_directory.environment, server_directory.directory / "server.log")
        test_site = Site(
            server,
            server_directory.endpoint,
            server_directory.logs,
            server_directory.environment,
            org_id,
            other_org_id,
            keys,
            aaiclick_stack,
        )
        yield test_site
        for client in test_site.clients.values():
            client.close()
        assert server.stop() == 0


@pytest.fixture(scope="module")
def browser(site: Site) -> Iterator[Browser]:
    """A session of an admin of the default organisation."""
    browser = Browser(site, "operator-admin")
    yield browser
    browser.client.close()


@pytest.fixture
def command(site, monkeypatch):
    """Runs a command remotely as a role, or locally (role None)."""

    def run(*arguments: str, role: str | None = "operator-admin", input_text: str | None = None):
        for name in list(os.environ):
            if name.startswith("AAICLICK_") and name != "AAICLICK_TEST_HOME":
                monkeypatch.delenv(name)
        if role is None:
            monkeypatch.setenv("AAICLICK_DATABASE_URL", site.endpoint.dsn)
            monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", site.environment["AAICLICK_CLICKHOUSE_URL"])
            monkeypatch.setenv("AAICLICK_LOG_DIR", str(site.logs))
            monkeypatch.setenv("AAICLICK_SECRETS_KEY", SECRETS_KEY)
        else:
            monkeypatch.setenv("AAICLICK_SERVER", site.server.url)
            monkeypatch.setenv("AAICLICK_API_KEY", site.keys[role])
        get_settings.cache_clear()
        return CliRunner().invoke(cli, list(arguments), input_text, standalone_mode=False)

    yield run
    get_settings.cache_clear()


@pytest.fixture
def http_worker(site: Site) -> HttpWorker:
    return HttpWorker(site, "worker")
