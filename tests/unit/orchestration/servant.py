"""A ClickHouse of any number of nodes, as far as users go: it lets them in until their time is over, and obeys the
admin, or does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aaiclick.data.errors import QueryError
from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.targets import ClickHouseTarget

ADMIN = ClickHouseTarget("db.example.org", 8443, "admin", "main", "hunter2", secure=True)
START = 1_800_000_000


@dataclass
class User:
    password: str
    until: float = float("inf")
    roles: set[str] = field(default_factory=set)


class Rows(list[dict[str, object]]):
    def to_pylist(self) -> Rows:
        return self


class Servant:
    """`now` is its clock, `skew` what the clocks of hosts are ahead of it; `away` are hosts that do not answer, `stuck`
    users that cannot be changed.
    """

    def __init__(self, *, makes_users: bool = True, refusal: int = 514) -> None:
        self.now = START
        self.skew: dict[str, int] = {}
        self.away: set[str] = set()
        self.stuck: set[str] = set()
        self.said: list[str] = []
        self.users: dict[str, dict[str, User]] = {}
        self.makes_users = makes_users
        self.refusal = refusal

    async def connect(self, target: ClickHouseTarget) -> Session:
        session = Session(self, target)
        session.check()
        return session

    def clock(self, host: str) -> int:
        return self.now + self.skew.get(host, 0)

    def of(self, host: str) -> dict[str, User]:
        return self.users.setdefault(host, {ADMIN.user: User(ADMIN.password)})


class Session:
    def __init__(self, servant: Servant, target: ClickHouseTarget) -> None:
        self._servant = servant
        self._target = target

    def check(self) -> None:
        if self._target.host in self._servant.away:
            raise UnreachableError("away")
        user = self._servant.of(self._target.host).get(self._target.user)
        if (
            user is None
            or user.password != self._target.password
            or user.until <= self._servant.clock(self._target.host)
        ):
            raise UnauthorisedError("refused")

    async def read_text(self, text: str, parameters: dict[str, str] | None = None) -> Rows:
        self.check()
        if "now()" in text:
            return Rows([{"now": self._servant.clock(self._target.host)}])
        assert "FROM system.users" in text
        names = self._servant.of(self._target.host)
        return Rows([{"name": name} for name in names if name.startswith((parameters or {})["prefix"])])

    async def run(self, text: str) -> None:
        self.check()
        self._servant.said.append(text)
        users = self._servant.of(self._target.host)
        if text.startswith(("SELECT", "CREATE DATABASE")):
            return
        if not self._servant.makes_users:
            error = QueryError("there is no writeable access storage")
            error.code = self._servant.refusal
            raise error
        [*_, name] = re.findall(r"`([^`]+)`", text.partition(" IDENTIFIED")[0].partition(" VALID")[0])
        if name in self._servant.stuck:
            raise QueryError(f"cannot do this: {text}")
        if text.startswith("DROP USER"):
            users.pop(name, None)
        elif text.startswith("CREATE USER"):
            self._identify(users.setdefault(name, User("")), text)
        elif text.startswith("ALTER USER"):
            if name not in users:
                raise UnauthorisedError("there is no such user")
            self._identify(users[name], text)
        elif found := re.fullmatch(r"GRANT `([^`]+)` TO `[^`]+`", text):
            users[name].roles.add(found[1])

    @staticmethod
    def _identify(user: User, text: str) -> None:
        if found := re.search(r"sha256_password BY '(\w+)'", text):
            user.password, user.until = found[1], float("inf")
        if found := re.search(r"VALID UNTIL '([^']+) UTC'", text):
            user.until = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
