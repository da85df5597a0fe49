"""Fixtures: an embedded stack per test, in its own home, stopped afterwards."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import shutil
from base64 import b64encode
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from aaiclick.local.drop_privileges import choose_unprivileged_user
from aaiclick.local.home import Home
from aaiclick.local.postgres_cluster import EmbeddedPostgres
from aaiclick.local.stack_connection import StackConnection, ask_keeper


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Path:
    """A home with a new PostgreSQL cluster; copying it is faster than running initdb per test."""
    home = Home(tmp_path_factory.mktemp("cluster") / "home")
    home.prepare()
    asyncio.run(EmbeddedPostgres(home, choose_unprivileged_user()).create_cluster())
    shutil.rmtree(home.run)
    return home.path


class Stack:
    """One home and a stack connection to it."""

    def __init__(self, home: Home, linger_seconds: float = 20) -> None:
        self.home = home
        self.connection = StackConnection(home, linger_seconds)

    def status(self):
        answer = ask_keeper(self.home, {"op": "status"})
        return answer and answer["status"]

    def stop(self) -> None:
        self.connection.close()
        ask_keeper(self.home, {"op": "stop"})

    def wait_until_gone(self) -> None:
        """Block until the keeper has released its lock."""
        with self.home.keeper_lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    async def connect(self):
        endpoint = self.connection.postgres_endpoint()
        return await asyncpg.connect(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.user,
            password=endpoint.password,
            database=endpoint.database,
        )

    def clickhouse(self, query: str, *, user=None, password=None, path=None) -> str:
        endpoint = self.connection.clickhouse_endpoint()
        credential = b64encode(
            f"{user or endpoint.user}:{endpoint.password if password is None else password}".encode()
        ).decode()
        with closing(http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=60)) as connection:
            url = "/" + (endpoint.path if path is None else path)
            connection.request("POST", url, query, {"Authorization": f"Basic {credential}"})
            response = connection.getresponse()
            body = response.read().decode()
        if response.status != 200:
            raise AssertionError(f"{response.status} {body}")
        return body.strip()


@pytest.fixture
def make_stack():
    stacks: list[Stack] = []

    def make(path, linger_seconds: float = 20) -> Stack:
        stacks.append(Stack(Home(path), linger_seconds))
        return stacks[-1]

    yield make
    for stack in stacks:
        stack.stop()


@pytest.fixture
def stack(make_stack, cluster, tmp_path):
    return make_stack(shutil.copytree(cluster, tmp_path / "home"))


@pytest.fixture(scope="module")
def shared_stack(cluster, tmp_path_factory):
    """A running stack for tests that change nothing."""
    stack = Stack(Home(shutil.copytree(cluster, tmp_path_factory.mktemp("shared") / "home")))
    stack.connection.require_servers("postgres", "clickhouse")
    yield stack
    stack.stop()
