"""The ClickHouse users of single workers: what processes without a credential of ours are given.

A worker of a server gets a user of its own, `{database}_{organisation}_{worker}`, with the role of its organisation. It
is made at the worker's first claim and lasts an hour. A pass every few minutes lets it last longer while PostgreSQL
says that the worker is heard of, whichever server heard it, and drops it when the worker has ended. A worker whose key
was revoked is refused, so nothing is heard of it any more, and its user lapses.

The password is derived from ours and the user's name, so several servers give the same one. It changes with the worker:
a process that is started again registers by another id and is another user. It does not change while the worker lives,
since ClickHouse asks for it with every query, and a task would lose its access in the middle.

Which clock is which: how long users last is by ClickHouse's clock, who lives by PostgreSQL's, and this process only
measures how long ago it saw or renewed something. A user is taken to be there for `FRESH_SECONDS` after it was last
seen to be that of a living worker; that of a worker that was found dead is dropped `ENDED_SECONDS` later. The latter is
longer: so a worker that was taken for dead and is back is never given a user that another server has dropped.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import AaiclickError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.tenants import (
    READY_SECONDS,
    Tenants,
    as_user,
    connect,
    no_users,
    quoted,
    role_of,
    role_statements,
    secret_of,
    tenant_target,
    user_statements,
)
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.store.workers import Standing, standing
from aaiclick.targets import ClickHouseTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

log = logging.getLogger(__name__)

VALID_SECONDS = 3600
"""How long a worker's user lasts unless it is renewed: what is left to whoever stole it, once the worker is gone."""

RENEW_SECONDS = 900.0
"""How long after a renewal the next one is due. There is time for two that fail."""

PASS_SECONDS = 300.0
FRESH_SECONDS = 2 * PASS_SECONDS
ENDED_SECONDS = 3 * PASS_SECONDS

ACCESS_DENIED = 497
NO_USERS_BY_SQL = (495, ACCESS_DENIED, 514)
"""What ClickHouse answers where users cannot be made: a storage that is read only, no right to, no storage."""

ON_A_CLUSTER = "on a cluster a user could write into every database through the other nodes"

_CLOCK = "SELECT toUnixTimestamp(now()) AS now"
_USERS = "SELECT name FROM system.users WHERE startsWith(name, {prefix:String})"
_NAME = re.compile(r"([0-9a-f]{32})_([1-9]\d{0,18})")


def worker_target(admin: ClickHouseTarget, org_id: UUID, worker_id: int) -> ClickHouseTarget:
    """Where a worker's Objects are, and the user that it alone is given."""
    name = f"{admin.database}_{org_id.hex}_{worker_id}"
    database = tenant_target(admin, org_id).database
    return as_user(admin.with_database(database), name, secret_of(admin, name))


def valid_until(now: int) -> str:
    """The end of what is made or renewed now, as ClickHouse reads it."""
    return datetime.fromtimestamp(now + VALID_SECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def renew_statement(name: str, until: str) -> str:
    return f"ALTER USER {quoted(name)} VALID UNTIL '{until}'"


def drop_statement(name: str) -> str:
    return f"DROP USER IF EXISTS {quoted(name)}"


class Credentials:
    """Gives users to workers, and looks after all users that there are, whoever made them."""

    def __init__(self, tenants: Tenants, clock: Callable[[], float] = time.monotonic) -> None:
        self._tenants = tenants
        self._admin = tenants.admin
        self._clock = clock
        self._seen: dict[str, float] = {}
        self._renewed: dict[str, float] = {}
        self._roles: set[UUID] = set()
        self._none_until = float("-inf")

    async def give(self, org_id: UUID, worker_id: int) -> ClickHouseTarget:
        """The credential of a worker; raises UnauthorisedError where there can be no such user.

        The default organisation is the operator's: where there is no user for each, its workers get the configured one.
        """
        target = self._target(org_id, worker_id)
        if self._clock() - self._seen.get(target.user, float("-inf")) < FRESH_SECONDS:
            return target
        if org_id == DEFAULT_ORG_ID:
            if self._admin.cluster or self._clock() < self._none_until:
                return self._admin
        elif (await self._tenants.ready(org_id)).user == self._admin.user:
            raise no_users(self._admin, ON_A_CLUSTER if self._admin.cluster else "its users are written in files")
        try:
            await self._make(org_id, target)
        except UnreachableError:
            raise
        except AaiclickError as error:
            if _code(error) not in NO_USERS_BY_SQL:
                raise UnauthorisedError(
                    f"The ClickHouse at {self._admin.host} has not made a user for the worker: {_hidden(error, target)}"
                ) from None
            if org_id != DEFAULT_ORG_ID:
                raise no_users(self._admin, _hidden(error, target)) from None
            self._none_until = self._clock() + READY_SECONDS
            return self._admin
        return target

    def knows(self, org_id: UUID, worker_id: int) -> bool:
        """Whether this process has given the worker a user, or seen it."""
        return self._target(org_id, worker_id).user in self._seen

    async def drop(self, org_id: UUID, worker_id: int) -> None:
        """The worker has said goodbye."""
        await self._drop(self._target(org_id, worker_id).user)

    async def run_once(self, connection: Connection) -> dict[str, int]:
        """One pass over all users of workers: renew, drop; says how many. Any number of servers may do it at once."""
        counts = {"renewed": 0, "dropped": 0, "refused": 0}
        started = self._clock()
        try:
            found = await self._find()
        except AaiclickError as error:
            if _code(error) != ACCESS_DENIED:
                raise
            return counts  # who may not see users has made none
        stands = await standing(connection, found.values(), heard_seconds=RENEW_SECONDS, ended_seconds=ENDED_SECONDS)
        for name, who in found.items():
            try:
                if stands[who] is Standing.ENDED:
                    await self._drop(name)
                    counts["dropped"] += 1
                elif stands[who] is Standing.HEARD_OF:
                    counts["renewed"] += await self._keep(name, *who)
            except UnreachableError:
                raise
            except AaiclickError as error:  # others have theirs all the same
                counts["refused"] += 1
                log.warning("the ClickHouse user %s stays as it is: %s", name, _hidden(error, self._target(*who)))
        self._forget(name for name, when in self._seen.items() if name not in found and when < started)
        return counts

    async def _find(self) -> dict[str, tuple[UUID, int]]:
        """The users of workers that there are, and whose they are."""
        prefix = f"{self._admin.database}_"
        rows = await (await connect(self._admin)).read_text(_USERS, {"prefix": prefix})
        names = [str(row["name"]) for row in rows.to_pylist()]
        parts = ((name, _NAME.fullmatch(name.removeprefix(prefix))) for name in names)
        return {name: (UUID(hex=part[1]), int(part[2])) for name, part in parts if part and int(part[2]) < 1 << 63}

    async def _keep(self, name: str, org_id: UUID, worker_id: int) -> bool:
        """Renew the user of a worker that lives, if that is due."""
        if self._clock() - self._renewed.get(name, float("-inf")) < RENEW_SECONDS:
            self._seen[name] = self._clock()
            return False
        try:
            await self._say(renew_statement(name, await self._until()))
        except UnreachableError:
            raise
        except AaiclickError:  # it was dropped this moment
            await self._make(org_id, self._target(org_id, worker_id))
        self._seen[name] = self._renewed[name] = self._clock()
        return True

    async def _make(self, org_id: UUID, target: ClickHouseTarget) -> None:
        role = role_of(self._admin, org_id)
        if org_id not in self._roles:  # also after an upgrade that lets it do more
            await self._say(*role_statements(role, target.database))
            self._roles.add(org_id)
        await self._say(*user_statements(target, role, await self._until()))
        self._seen[target.user] = self._renewed[target.user] = self._clock()

    async def _drop(self, name: str) -> None:
        self._forget([name])
        await self._say(drop_statement(name))

    async def _until(self) -> str:
        """Until when a user that is made or renewed now lasts."""
        rows = await (await connect(self._admin)).read_text(_CLOCK)
        return valid_until(rows.to_pylist()[0]["now"])

    async def _say(self, *statements: str) -> None:
        client = await connect(self._admin)
        for statement in statements:
            await client.run(statement)

    def _target(self, org_id: UUID, worker_id: int) -> ClickHouseTarget:
        return worker_target(self._admin, org_id, worker_id)

    def _forget(self, names: Iterable[str]) -> None:
        for name in [*names]:
            self._seen.pop(name, None)
            self._renewed.pop(name, None)


def _code(error: AaiclickError) -> int:
    """What ClickHouse calls it. Its errors are of `aaiclick.data`, which is loaded when it is needed."""
    return getattr(error, "code", 0)


def _hidden(error: AaiclickError, target: ClickHouseTarget) -> str:
    return error.what.replace(target.password, "********")
