"""A real server process on real databases, shared by the tests of a module, and credentials of every kind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from aaiclick.settings import PostgresTarget
from aaiclick.store import keys, orgs
from aaiclick.store.engine import connect
from aaiclick.store.words import DEFAULT_ORG_ID
from tests.hatchery import HATCHERY, Hatched

ROLES = ("reader", "writer", "admin", "worker")
OURS = ("AAICLICK_", "POSTGRES_", "WORKER_", "JOB_")


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
        return asyncio.run(_with_connection(self.target, work))


async def _with_connection(target: PostgresTarget, work: Callable[[Any], Any]) -> Any:
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
    }


async def _populate(target: PostgresTarget) -> tuple[UUID, UUID, dict[str, str]]:
    connection = await connect(target)
    try:
        ours = (await orgs.create_org(connection, name="Ours", slug="ours"))["id"]
        other = (await orgs.create_org(connection, name="Other", slug="other"))["id"]
        made = {}
        for prefix, org in (("", ours), ("other-", other), ("operator-", DEFAULT_ORG_ID)):
            for role in ROLES:
                key = await keys.create_key(connection, org_id=org, name=role, scopes=[role])
                made[prefix + role] = key.text
        return ours, other, made
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def site(aaiclick_stack, _aaiclick_template, tmp_path_factory) -> Iterator[Site]:
    """The server of a module."""
    database = aaiclick_stack.run(aaiclick_stack.take_database())
    target = aaiclick_stack.lease.postgres().with_database(database)
    directory = tmp_path_factory.mktemp("server")
    logs = directory / "logs"
    logs.mkdir()
    environment = environment_for(target, aaiclick_stack.lease.clickhouse().url, logs)
    ours, other, made = asyncio.run(_populate(target))
    server = start_server(environment, directory / "server.log")
    found = Site(server, target, logs, environment, ours, other, made)
    yield found
    for client in found.clients.values():
        client.close()
    assert server.stop() == 0
    aaiclick_stack.run(aaiclick_stack.leave_database(database))
