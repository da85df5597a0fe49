"""A stack of this test's own, in a home of its own, stopped afterwards whatever happened."""

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

from aaiclick.local.home import Home
from aaiclick.local.lease import Lease, ask
from aaiclick.local.postgres import EmbeddedPostgres
from aaiclick.local.unprivileged import choose_disguise


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Path:
    """A home with a PostgreSQL that has been made and never started: copying it is quicker than making another."""
    home = Home(tmp_path_factory.mktemp("cluster") / "home")
    home.prepare()
    asyncio.run(EmbeddedPostgres(home, choose_disguise()).initialise())
    shutil.rmtree(home.run)
    return home.path


class Stack:
    """One home and one lease on it."""

    def __init__(self, home: Home, linger_seconds: float = 20) -> None:
        self.home = home
        self.lease = Lease(home, linger_seconds)

    def status(self):
        answer = ask(self.home, {"op": "status"})
        return answer and answer["status"]

    def stop(self) -> None:
        self.lease.close()
        ask(self.home, {"op": "stop"})

    def wait_until_gone(self) -> None:
        """Block until the keeper has ended and released its lock."""
        with self.home.keeper_lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    async def connect(self):
        at = self.lease.postgres()
        return await asyncpg.connect(
            host=at.host, port=at.port, user=at.user, password=at.password, database=at.database
        )

    def clickhouse(self, query: str, *, user=None, password=None, path=None) -> str:
        at = self.lease.clickhouse()
        credential = b64encode(f"{user or at.user}:{at.password if password is None else password}".encode()).decode()
        with closing(http.client.HTTPConnection(at.host, at.port, timeout=60)) as connection:
            url = "/" + (at.path if path is None else path)
            connection.request("POST", url, query, {"Authorization": f"Basic {credential}"})
            answer = connection.getresponse()
            said = answer.read().decode()
        if answer.status != 200:
            raise AssertionError(f"{answer.status} {said}")
        return said.strip()


@pytest.fixture
def make_stack():
    made: list[Stack] = []

    def make(path, linger_seconds: float = 20) -> Stack:
        made.append(Stack(Home(path), linger_seconds))
        return made[-1]

    yield make
    for stack in made:
        stack.stop()


@pytest.fixture
def stack(make_stack, cluster, tmp_path):
    return make_stack(shutil.copytree(cluster, tmp_path / "home"))


@pytest.fixture(scope="module")
def shared_stack(cluster, tmp_path_factory):
    """For tests that only look."""
    stack = Stack(Home(shutil.copytree(cluster, tmp_path_factory.mktemp("shared") / "home")))
    stack.lease.require("postgres", "clickhouse")
    yield stack
    stack.stop()
