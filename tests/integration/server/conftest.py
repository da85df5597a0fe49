"""A real server process on real databases, shared by the tests of a module, and credentials of every kind."""

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
from aaiclick.settings import get_settings
from aaiclick.store import keys, orgs
from aaiclick.store.engine import connect
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import PostgresTarget
from tests.hatchery import HATCHERY, Hatched
from tests.integration.server.hand import Hand

ROLES = ("reader", "writer", "admin", "worker")
OURS = ("AAICLICK_", "POSTGRES_", "WORKER_", "JOB_")
SECRETS_KEY = "c2VjcmV0cyBvZiB0ZXN0cywgMzIgYnl0ZXMgb2Yga2U="


@dataclass
class Server:
    """One `aaiclick server start`."""

    process: Hatched
    url: str
    log: Path
    first_key: str | None

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@dataclass
class Site:
    """A server, its database, two organisations of it (neither the operator's) and the keys to them."""

    server: Server
    target: PostgresTarget
    logs: Path
    environment: dict[str, str]
    org: UUID
    other: UUID
    keys: dict[str, str] = field(repr=False)
    clients: dict[str, httpx.Client] = field(default_factory=dict, repr=False)

    def as_(self, role: str | None, **headers: str) -> httpx.Client:
        """A client with a role's key: `reader`, `writer`, `admin`, `worker` of our org, `other-admin` and so on of the
        other, `operator-admin` and so on of the default one; None has no key.
        """
        credential = {} if role is None else {"Authorization": f"Bearer {self.keys[role]}"}
        name = f"{role} {headers}"
        if name not in self.clients:
            self.clients[name] = httpx.Client(base_url=self.server.url, headers=credential | headers, timeout=30)
        return self.clients[name]

    def sql(self, statement: str, *arguments: Any) -> list[Any]:
        return self.run(lambda connection: connection.fetch(statement, *arguments))

    def run(self, work: Callable[[Any], Any]) -> Any:
        return asyncio.run(with_connection(self.target, work))


async def with_connection(target: PostgresTarget, work: Callable[[Any], Any]) -> Any:
    connection = await connect(target)
    try:
        return await work(connection)
    finally:
        await connection.close()


def start_server(environment: dict[str, str], log: Path, *options: str) -> Server:
    """Start one and wait until it answers."""
    with log.open("wb") as stream:
        process = HATCHERY.start(["server", "start", "--port", "0", *options], environment, None, stream, stream)
    while True:
        said = log.read_text()
        time.sleep(0.05)
        found = re.search(r"serves at (http://\S+:\d+)", said)
        if found:
            break
        assert process.poll() is None, said
    url = found.group(1)
    httpx.get(f"{url}/health/live", timeout=30).raise_for_status()  # the socket is open: it waits until it is served
    first = re.search(r"aai_\w+", said)
    return Server(process, url, log, first.group() if first else None)


def environment_for(target: PostgresTarget, clickhouse_url: str, logs: Path) -> dict[str, str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return bare | {
        "AAICLICK_DATABASE_URL": target.dsn,
        "AAICLICK_CLICKHOUSE_URL": clickhouse_url,
        "AAICLICK_LOG_DIR": str(logs),
        "AAICLICK_SECRETS_KEY": SECRETS_KEY,
    }


@dataclass
class Premises:
    """Where a server can be started: a database, a folder, and an environment that names both."""

    target: PostgresTarget
    directory: Path
    logs: Path
    environment: dict[str, str]


@contextmanager
def premises(stack: Any, directory: Path) -> Iterator[Premises]:
    database = stack.run(stack.take_database())
    target = stack.lease.postgres().with_database(database)
    logs = directory / "logs"
    logs.mkdir()
    yield Premises(target, directory, logs, environment_for(target, stack.lease.clickhouse().url, logs))
    stack.run(stack.leave_database(database))


async def make_keys(connection: Any, whose: dict[str, UUID]) -> dict[str, str]:
    """A key of every role for each organisation, by prefix and role."""
    return {
        prefix + role: (await keys.create_key(connection, org_id=org, name=role, scopes=[role])).text
        for prefix, org in whose.items()
        for role in ROLES
    }


async def _populate(connection: Any) -> tuple[UUID, UUID, dict[str, str]]:
    ours = (await orgs.create_org(connection, name="Ours", slug="ours"))["id"]
    other = (await orgs.create_org(connection, name="Other", slug="other"))["id"]
    return ours, other, await make_keys(connection, {"": ours, "other-": other, "operator-": DEFAULT_ORG_ID})


@pytest.fixture(scope="module")
def site(aaiclick_stack, _aaiclick_template, tmp_path_factory) -> Iterator[Site]:
    """The server of a module."""
    with premises(aaiclick_stack, tmp_path_factory.mktemp("server")) as place:
        ours, other, made = asyncio.run(with_connection(place.target, _populate))
        server = start_server(place.environment, place.directory / "server.log")
        found = Site(server, place.target, place.logs, place.environment, ours, other, made)
        yield found
        for client in found.clients.values():
            client.close()
        assert server.stop() == 0


@pytest.fixture
def command(site, monkeypatch):
    """Runs a command remotely as a role, or locally beside the database."""

    def run(*arguments: str, role: str | None = "operator-admin", given: str | None = None):
        for name in list(os.environ):
            if name.startswith("AAICLICK_") and name != "AAICLICK_TEST_HOME":
                monkeypatch.delenv(name)
        if role is None:
            monkeypatch.setenv("AAICLICK_DATABASE_URL", site.target.dsn)
            monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", site.environment["AAICLICK_CLICKHOUSE_URL"])
            monkeypatch.setenv("AAICLICK_LOG_DIR", str(site.logs))
            monkeypatch.setenv("AAICLICK_SECRETS_KEY", SECRETS_KEY)
        else:
            monkeypatch.setenv("AAICLICK_SERVER", site.server.url)
            monkeypatch.setenv("AAICLICK_API_KEY", site.keys[role])
        get_settings.cache_clear()
        return CliRunner().invoke(cli, list(arguments), given, standalone_mode=False)

    yield run
    get_settings.cache_clear()


@pytest.fixture
def hand(site: Site) -> Hand:
    return Hand(site, "worker")
