"""Fake ClickHouse with any number of nodes: implements users, roles and their expiry."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aaiclick.data.errors import QueryError
from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.server_addresses import ClickHouseEndpoint

ADMIN = ClickHouseEndpoint("db.example.org", 8443, "admin", "main", "hunter2", secure=True)
START = 1_800_000_000


@dataclass
class User:
    password: str
    until: float = float("inf")
    roles: set[str] = field(default_factory=set)


class Rows(list[dict[str, object]]):
    def to_pylist(self) -> Rows:
        return self


class FakeClickHouse:
    """Create the fake server.

    `now` is its clock, `skew` the difference of the hosts' clocks, `unreachable` the hosts that do not answer, `stuck`
    the users that cannot be changed.
    """

    def __init__(self, *, allows_users: bool = True, refusal: int = 514) -> None:
        self.now = START
        self.skew: dict[str, int] = {}
        self.unreachable: set[str] = set()
        self.stuck: set[str] = set()
        self.statements: list[str] = []
        self.users: dict[str, dict[str, User]] = {}
        self.allows_users = allows_users
        self.refusal = refusal

    async def connect(self, endpoint: ClickHouseEndpoint) -> Session:
        session = Session(self, endpoint)
        session.check()
        return session

    def clock(self, host: str) -> int:
        return self.now + self.skew.get(host, 0)

    def users_of(self, host: str) -> dict[str, User]:
        return self.users.setdefault(host, {ADMIN.user: User(ADMIN.password)})


class Session:
    def __init__(self, server: FakeClickHouse, endpoint: ClickHouseEndpoint) -> None:
        self._server = server
        self._endpoint = endpoint

    def check(self) -> None:
        if self._endpoint.host in self._server.unreachable:
            raise UnreachableError("away")
        user = self._server.users_of(self._endpoint.host).get(self._endpoint.user)
        if (
            user is None
            or user.password != self._endpoint.password
            or user.until <= self._server.clock(self._endpoint.host)
        ):
            raise UnauthorisedError("refused")

    async def read_text(self, text: str, parameters: dict[str, str] | None = None) -> Rows:
        self.check()
        if "now()" in text:
            return Rows([{"now": self._server.clock(self._endpoint.host)}])
        assert "FROM system.users" in text
        names = self._server.users_of(self._endpoint.host)
        return Rows([{"name": name} for name in names if name.startswith((parameters or {})["prefix"])])

    async def run(self, text: str) -> None:
        self.check()
        self._server.statements.append(text)
        users = self._server.users_of(self._endpoint.host)
        if text.startswith(("SELECT", "CREATE DATABASE")):
            return
        if not self._server.allows_users:
            error = QueryError("there is no writeable access storage")
            error.code = self._server.refusal
            raise error
        [*_, name] = re.findall(r"`([^`]+)`", text.partition(" IDENTIFIED")[0].partition(" VALID")[0])
        if name in self._server.stuck:
            raise QueryError(f"cannot do this: {text}")
        if text.startswith("DROP USER"):
            users.pop(name, None)
        elif text.startswith("CREATE USER"):
            self._identify(users.setdefault(name, User("")), text)
        elif text.startswith("ALTER USER"):
            if name not in users:
                raise UnauthorisedError("there is no such user")
            self._identify(users[name], text)
        elif match := re.fullmatch(r"GRANT `([^`]+)` TO `[^`]+`", text):
            users[name].roles.add(match[1])

    @staticmethod
    def _identify(user: User, text: str) -> None:
        if match := re.search(r"sha256_password BY '(\w+)'", text):
            user.password, user.until = match[1], float("inf")
        if match := re.search(r"VALID UNTIL '([^']+) UTC'", text):
            user.until = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
