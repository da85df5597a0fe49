"""ClickHouse users of HTTP workers, which have no credential of the installation.

Each HTTP worker has its own user, `{database}_{organisation}_{worker}`, with the role of its organisation. It is
created at the worker's first claim and valid for an hour. A pass every few minutes renews it while PostgreSQL has
heartbeats of the worker, from any server, and drops it when the worker has ended. If the worker's key is revoked, its
heartbeats are refused and its user expires.

The password is derived from the configured one and the user's name, so all servers return the same. A restarted process
registers with a new id and gets another user. The password does not change while the worker runs: ClickHouse checks it
with every query, so a task would lose its access.

Clocks: validity of users is by ClickHouse's clock, liveness of workers by PostgreSQL's; this process only measures the
time since it saw or renewed a user. A user is assumed to exist for `FRESH_SECONDS` after its worker was last seen
alive; the user of a dead worker is dropped after `ENDED_SECONDS`. The latter is longer, so that a worker that was
assumed dead and is back never gets a user that another server has dropped.
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
from aaiclick.orchestration.tenant_databases import (
    READY_SECONDS,
    TenantDatabases,
    connect_clickhouse,
    derive_password,
    no_users_error,
    quote_identifier,
    role_name,
    role_statements,
    tenant_endpoint,
    user_statements,
    with_user,
)
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.store.engine.workers import WorkerLiveness, check_liveness
from aaiclick.store.enums import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

log = logging.getLogger(__name__)

VALID_SECONDS = 3600
"""Validity of a user without renewal: the longest time for which a stolen credential works after its worker ended."""

RENEW_SECONDS = 900.0
"""Interval between renewals; leaves time for two failed ones."""

PASS_SECONDS = 300.0
FRESH_SECONDS = 2 * PASS_SECONDS
ENDED_SECONDS = 3 * PASS_SECONDS

ACCESS_DENIED = 497
NO_USERS_BY_SQL = (495, ACCESS_DENIED, 514)
"""Error codes of ClickHouse if users cannot be created by SQL: read-only storage, access denied, no storage."""

ON_A_CLUSTER = "on a cluster a user could write into every database through the other nodes"

_CLOCK = "SELECT toUnixTimestamp(now()) AS now"
_USERS = "SELECT name FROM system.users WHERE startsWith(name, {prefix:String})"
_NAME = re.compile(r"([0-9a-f]{32})_([1-9]\d{0,18})")


def worker_endpoint(admin: ClickHouseEndpoint, org_id: UUID, worker_id: int) -> ClickHouseEndpoint:
    """Endpoint with the organisation's database and the worker's own user."""
    name = f"{admin.database}_{org_id.hex}_{worker_id}"
    database = tenant_endpoint(admin, org_id).database
    return with_user(admin.with_database(database), name, derive_password(admin, name))


def valid_until(now: int) -> str:
    """Expiry of a user that is created or renewed now, in ClickHouse's format."""
    return datetime.fromtimestamp(now + VALID_SECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def renew_statement(name: str, until: str) -> str:
    return f"ALTER USER {quote_identifier(name)} VALID UNTIL '{until}'"


def drop_statement(name: str) -> str:
    return f"DROP USER IF EXISTS {quote_identifier(name)}"


class WorkerUsers:
    """Creates, renews and drops the ClickHouse users of workers, also those that other servers created."""

    def __init__(self, tenants: TenantDatabases, clock: Callable[[], float] = time.monotonic) -> None:
        self._tenants = tenants
        self._admin = tenants.admin
        self._clock = clock
        self._seen_at: dict[str, float] = {}
        self._renewed_at: dict[str, float] = {}
        self._roles: set[UUID] = set()
        self._no_users_until = float("-inf")

    async def get_credential(self, org_id: UUID, worker_id: int) -> ClickHouseEndpoint:
        """Credential of a worker, created if needed; raises UnauthorisedError if users cannot be created.

        The default organisation is the operator's: without users by SQL its workers get the configured credential.
        """
        endpoint = self._endpoint(org_id, worker_id)
        if self._clock() - self._seen_at.get(endpoint.user, float("-inf")) < FRESH_SECONDS:
            return endpoint
        if org_id == DEFAULT_ORG_ID:
            if self._admin.cluster or self._clock() < self._no_users_until:
                return self._admin
        elif (await self._tenants.ensure_database(org_id)).user == self._admin.user:
            raise no_users_error(self._admin, ON_A_CLUSTER if self._admin.cluster else "its users are defined in files")
        try:
            await self._create_user(org_id, endpoint)
        except UnreachableError:
            raise
        except AaiclickError as error:
            if _error_code(error) not in NO_USERS_BY_SQL:
                raise UnauthorisedError(
                    f"The ClickHouse at {self._admin.host} did not create a user for the worker: "
                    f"{_redact_error(error, endpoint)}"
                ) from None
            if org_id != DEFAULT_ORG_ID:
                raise no_users_error(self._admin, _redact_error(error, endpoint)) from None
            self._no_users_until = self._clock() + READY_SECONDS
            return self._admin
        return endpoint

    def is_known(self, org_id: UUID, worker_id: int) -> bool:
        """Whether this process has created or seen the worker's user."""
        return self._endpoint(org_id, worker_id).user in self._seen_at

    async def drop_user(self, org_id: UUID, worker_id: int) -> None:
        """Drop the user of a worker that was deregistered."""
        await self._drop_by_name(self._endpoint(org_id, worker_id).user)

    async def run_once(self, connection: Connection) -> dict[str, int]:
        """Renew and drop users of workers in one pass; returns counts. Several servers may run it concurrently."""
        counts = {"renewed": 0, "dropped": 0, "refused": 0}
        started = self._clock()
        try:
            users = await self._list_users()
        except AaiclickError as error:
            if _error_code(error) != ACCESS_DENIED:
                raise
            return counts  # without access to system.users it has created none
        states = await check_liveness(
            connection, users.values(), alive_seconds=RENEW_SECONDS, ended_seconds=ENDED_SECONDS
        )
        for name, worker in users.items():
            try:
                if states[worker] is WorkerLiveness.ENDED:
                    await self._drop_by_name(name)
                    counts["dropped"] += 1
                elif states[worker] is WorkerLiveness.ALIVE:
                    counts["renewed"] += await self._renew_if_due(name, *worker)
            except UnreachableError:
                raise
            except AaiclickError as error:  # continue with the other users
                counts["refused"] += 1
                log.warning(
                    "the ClickHouse user %s was neither renewed nor dropped: %s",
                    name,
                    _redact_error(error, self._endpoint(*worker)),
                )
        self._forget_users(name for name, seen_at in self._seen_at.items() if name not in users and seen_at < started)
        return counts

    async def _list_users(self) -> dict[str, tuple[UUID, int]]:
        """Existing users of workers, with organisation and worker id."""
        prefix = f"{self._admin.database}_"
        rows = await (await connect_clickhouse(self._admin)).read_text(_USERS, {"prefix": prefix})
        names = [str(row["name"]) for row in rows.to_pylist()]
        matches = ((name, _NAME.fullmatch(name.removeprefix(prefix))) for name in names)
        return {
            name: (UUID(hex=match[1]), int(match[2])) for name, match in matches if match and int(match[2]) < 1 << 63
        }

    async def _renew_if_due(self, name: str, org_id: UUID, worker_id: int) -> bool:
        """Renew the user of a live worker if that is due; returns whether it was."""
        if self._clock() - self._renewed_at.get(name, float("-inf")) < RENEW_SECONDS:
            self._seen_at[name] = self._clock()
            return False
        try:
            await self._execute(renew_statement(name, await self._expiry()))
        except UnreachableError:
            raise
        except AaiclickError:  # another server has dropped it
            await self._create_user(org_id, self._endpoint(org_id, worker_id))
        self._seen_at[name] = self._renewed_at[name] = self._clock()
        return True

    async def _create_user(self, org_id: UUID, endpoint: ClickHouseEndpoint) -> None:
        role = role_name(self._admin, org_id)
        if org_id not in self._roles:  # repeated once per process: an upgrade may grant more
            await self._execute(*role_statements(role, endpoint.database))
            self._roles.add(org_id)
        await self._execute(*user_statements(endpoint, role, await self._expiry()))
        self._seen_at[endpoint.user] = self._renewed_at[endpoint.user] = self._clock()

    async def _drop_by_name(self, name: str) -> None:
        self._forget_users([name])
        await self._execute(drop_statement(name))

    async def _expiry(self) -> str:
        """Expiry of a user that is created or renewed now."""
        rows = await (await connect_clickhouse(self._admin)).read_text(_CLOCK)
        return valid_until(rows.to_pylist()[0]["now"])

    async def _execute(self, *statements: str) -> None:
        client = await connect_clickhouse(self._admin)
        for statement in statements:
            await client.run(statement)

    def _endpoint(self, org_id: UUID, worker_id: int) -> ClickHouseEndpoint:
        return worker_endpoint(self._admin, org_id, worker_id)

    def _forget_users(self, names: Iterable[str]) -> None:
        for name in [*names]:
            self._seen_at.pop(name, None)
            self._renewed_at.pop(name, None)


def _error_code(error: AaiclickError) -> int:
    """Error code of ClickHouse. Its exception class is in `aaiclick.data`, which is not imported here."""
    return getattr(error, "code", 0)


def _redact_error(error: AaiclickError, endpoint: ClickHouseEndpoint) -> str:
    return error.what.replace(endpoint.password, "********")
