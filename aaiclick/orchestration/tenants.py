"""Where the Objects of an organisation are: the default one's in the configured ClickHouse database, each other one's
in a database of its own, with a user of its own that can do nothing outside of it.

What an organisation may do is a role's. Its user has that role, and so have the users of single workers, which are what
is handed out (`credentials`): the organisation's own password never leaves processes that hold ours.

That password is derived from ours (HMAC), so nothing is kept anywhere: every process that may speak to ClickHouse for
all can also speak for one, and whoever is given the password of one learns nothing else. Database, role and user are
made when the organisation is, and again by whoever finds that they are not there.

A ClickHouse whose users are written in files (the embedded one) has no user for each: there every process of ours uses
the database of the organisation as the configured user, and who has no credential of ours is given none. So it is on a
cluster: its nodes answer each other as the user of the cluster's configuration, so whoever may make Distributed tables,
as Objects need there, writes through one into any database.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from aaiclick.errors import AaiclickError, UnauthorisedError, UnreachableError
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import ClickHouseTarget

ENGINES = ("MergeTree", "ReplacingMergeTree", "Memory", "StripeLog", "TinyLog")
"""What Objects and datasets are kept in. Others, such as File, URL and Distributed, lead out of the database."""

READY_SECONDS = 60.0
"""How long what was found ready is taken to be so."""


def tenant_target(admin: ClickHouseTarget, org_id: UUID) -> ClickHouseTarget:
    """Where an org's Objects are, and as whom it reaches them."""
    if org_id == DEFAULT_ORG_ID:
        return admin
    name = f"{admin.database}_{org_id.hex}"
    return as_user(admin.with_database(name), name, secret_of(admin, name))


def secret_of(admin: ClickHouseTarget, name: str) -> str:
    """The password of a user of ours: whoever has the configured one finds it, and nobody else."""
    return hmac.new(f"{admin.user}:{admin.password}".encode(), name.encode(), hashlib.sha256).hexdigest()


def as_user(node: ClickHouseTarget, name: str, secret: str) -> ClickHouseTarget:
    """The same servers by another user, who is the same on each of them."""
    others = tuple(as_user(each, name, secret) for each in node.others)
    return replace(node, user=name, password=secret, others=others)


def role_of(admin: ClickHouseTarget, org_id: UUID) -> str:
    """The role that says what an org may do; whoever wants to allow it more grants that to this."""
    return f"{admin.database}_{org_id.hex}_role"


def role_statements(role: str, database: str) -> list[str]:
    """What makes a role that may do everything in a database; any of it may be there already."""
    allowed = (
        *(f"TABLE ENGINE ON {engine}" for engine in ENGINES),  # some servers ask for it
        "CREATE TEMPORARY TABLE ON *.*",  # table functions such as numbers() ask for it
        *(f"SELECT ON system.{table}" for table in ("one", "numbers", "parts")),
    )
    return [
        f"CREATE ROLE IF NOT EXISTS {quoted(role)}",
        f"GRANT CURRENT GRANTS (ALL ON {quoted(database)}.*) TO {quoted(role)}",
        f"GRANT {', '.join(allowed)} TO {quoted(role)}",
    ]


def user_statements(user: ClickHouseTarget, role: str, until: str = "") -> list[str]:
    """What makes a user with a role, for ever or until a time; any of it may be there already."""
    name = quoted(user.user)
    lasting = f" VALID UNTIL '{until}'" if until else ""
    identity = f"IDENTIFIED WITH sha256_password BY '{user.password}'{lasting} DEFAULT DATABASE {quoted(user.database)}"
    return [
        f"CREATE USER IF NOT EXISTS {name} {identity}",
        f"ALTER USER {name} {identity}",  # as it is now: our own password may have changed
        f"GRANT {quoted(role)} TO {name}",
    ]


def quoted(name: str) -> str:
    """The database that is configured may be called anything."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


class Tenants:
    """Makes them ready, and knows for a while that they are."""

    def __init__(self, admin: ClickHouseTarget) -> None:
        self.admin = admin
        self._known: dict[UUID, tuple[ClickHouseTarget, float]] = {}
        self._making = asyncio.Lock()

    async def ready(self, org_id: UUID) -> ClickHouseTarget:
        """An org's database, by its own user where there can be one, else by ours."""
        if org_id == DEFAULT_ORG_ID:
            return self.admin
        async with self._making:
            known = self._known.get(org_id)
            if known is None or known[1] < time.monotonic():
                known = self._known[org_id] = await self._find(org_id), time.monotonic() + READY_SECONDS
            return known[0]

    async def _find(self, org_id: UUID) -> ClickHouseTarget:
        tenant = tenant_target(self.admin, org_id)
        if not self.admin.cluster and await _answers(tenant):
            return tenant
        for node in _nodes(self.admin):
            await (await connect(node)).run(f"CREATE DATABASE IF NOT EXISTS {quoted(tenant.database)}")
        if not self.admin.cluster:
            with suppress(UnauthorisedError):
                await make_user(self.admin, org_id)
                return tenant
        return self.admin.with_database(tenant.database)


async def make_user(admin: ClickHouseTarget, org_id: UUID) -> None:
    """Make the user of an org, and what it may do in its database."""
    tenant, role = tenant_target(admin, org_id), role_of(admin, org_id)
    statements = [*role_statements(role, tenant.database), *user_statements(tenant, role)]
    try:
        client = await connect(admin)
        for statement in statements:
            await client.run(statement)
    except UnreachableError:
        raise
    except AaiclickError as error:
        raise no_users(admin, error.what.replace(tenant.password, "********")) from None


def _nodes(admin: ClickHouseTarget) -> list[ClickHouseTarget]:
    """Every server by itself: a cluster has no place for databases in common."""
    return [replace(node, cluster="", others=()) for node in (admin, *admin.others)]


def no_users(admin: ClickHouseTarget, why: str) -> UnauthorisedError:
    return UnauthorisedError(
        f"The ClickHouse at {admin.host} has no user for each organisation: {why}.",
        remedy="Give organisations a ClickHouse server whose users are made by SQL (<access_management>1 in its "
        "users.xml), named by AAICLICK_CLICKHOUSE_URL; or run their workers with databases of your own.",
    )


async def _answers(tenant: ClickHouseTarget) -> bool:
    try:
        client = await connect(tenant)
        await client.run("SELECT 1")
    except UnreachableError:
        raise
    except AaiclickError:
        return False
    return True


async def connect(target: ClickHouseTarget) -> Any:
    """Heavy, and most workers never need it: loaded when it is."""
    return await importlib.import_module("aaiclick.data.client").connect(target)
