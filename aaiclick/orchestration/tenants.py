"""Where the Objects of an organisation are: the default one's in the configured ClickHouse database, each other one's
in a database of its own, with a user of its own that can do nothing outside of it.

The user's password is derived from ours (HMAC), so nothing is kept anywhere: every process that may speak to
ClickHouse for all can also speak for one, and whoever is given the password of one learns nothing else. Database and
user are made when the organisation is, and again by whoever finds that they are not there.

A ClickHouse whose users are written in files (the embedded one) has no user for each: there every process of ours uses
the database of the organisation as the configured user, and who has no credential of ours is given none.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

from aaiclick.errors import AaiclickError, UnauthorisedError, UnreachableError
from aaiclick.settings import ClickHouseTarget
from aaiclick.store.words import DEFAULT_ORG_ID

ENGINES = ("MergeTree", "ReplacingMergeTree", "Memory", "StripeLog", "TinyLog", "Distributed")
"""What Objects and datasets are kept in. Others, such as File and URL, lead out of the database."""

READY_SECONDS = 60.0
"""How long what was found ready is taken to be so."""


def tenant_target(admin: ClickHouseTarget, org_id: UUID) -> ClickHouseTarget:
    """Where an org's Objects are, and as whom it reaches them."""
    if org_id == DEFAULT_ORG_ID:
        return admin
    name = f"{admin.database}_{org_id.hex}"
    secret = hmac.new(f"{admin.user}:{admin.password}".encode(), name.encode(), hashlib.sha256).hexdigest()
    return _as_tenant(admin, name, secret)


def _as_tenant(node: ClickHouseTarget, name: str, secret: str) -> ClickHouseTarget:
    others = tuple(_as_tenant(each, name, secret) for each in node.others)
    return replace(node, user=name, database=name, password=secret, others=others)


def user_statements(tenant: ClickHouseTarget) -> list[str]:
    """What makes a tenant's user; any of it may be there already."""
    name = _quoted(tenant.database)
    return [
        f"CREATE USER IF NOT EXISTS {name}",
        f"ALTER USER {name} IDENTIFIED WITH sha256_password BY '{tenant.password}' DEFAULT DATABASE {name}",
        f"GRANT CURRENT GRANTS (ALL ON {name}.*) TO {name}",
        *(f"GRANT TABLE ENGINE ON {engine} TO {name}" for engine in ENGINES),  # some servers ask for it
        f"GRANT CREATE TEMPORARY TABLE ON *.* TO {name}",  # table functions such as numbers() ask for it
        f"GRANT SELECT ON system.one TO {name}",
        f"GRANT SELECT ON system.numbers TO {name}",
        f"GRANT SELECT ON system.parts TO {name}",
    ]


def _quoted(name: str) -> str:
    """The database that is configured may be called anything."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


class Tenants:
    """Makes them ready, and knows for a while that they are."""

    def __init__(self, admin: ClickHouseTarget) -> None:
        self._admin = admin
        self._known: dict[UUID, tuple[ClickHouseTarget, float]] = {}
        self._making = asyncio.Lock()

    async def ready(self, org_id: UUID) -> ClickHouseTarget:
        """An org's database, by its own user where there can be one, else by ours."""
        if org_id == DEFAULT_ORG_ID:
            return self._admin
        async with self._making:
            known = self._known.get(org_id)
            if known is None or known[1] < time.monotonic():
                known = self._known[org_id] = await self._find(org_id), time.monotonic() + READY_SECONDS
            return known[0]

    async def credential(self, org_id: UUID) -> ClickHouseTarget:
        """What may be handed to a process of the org's; raises UnauthorisedError where there is no such user."""
        target = await self.ready(org_id)
        if org_id != DEFAULT_ORG_ID and target.user == self._admin.user:
            raise _no_users(self._admin, "its users are written in files")
        return target

    async def _find(self, org_id: UUID) -> ClickHouseTarget:
        tenant = tenant_target(self._admin, org_id)
        if await _answers(tenant):
            return tenant
        for node in _nodes(self._admin):
            await (await _connect(node)).run(f"CREATE DATABASE IF NOT EXISTS {_quoted(tenant.database)}")
        try:
            await make_user(self._admin, org_id)
        except UnauthorisedError:
            return self._admin.with_database(tenant.database)
        return tenant


async def make_user(admin: ClickHouseTarget, org_id: UUID) -> None:
    """Make the user of an org, and what it may do in its database."""
    tenant = tenant_target(admin, org_id)
    try:
        for node in _nodes(admin):
            client = await _connect(node)
            for statement in user_statements(tenant):
                await client.run(statement)
    except UnreachableError:
        raise
    except AaiclickError as error:
        raise _no_users(admin, error.what.replace(tenant.password, "********")) from None


def _nodes(admin: ClickHouseTarget) -> list[ClickHouseTarget]:
    """Every server by itself: a cluster has no place for users and databases in common."""
    return [replace(node, cluster="", others=()) for node in (admin, *admin.others)]


def _no_users(admin: ClickHouseTarget, why: str) -> UnauthorisedError:
    return UnauthorisedError(
        f"The ClickHouse at {admin.host} has no user for each organisation: {why}.",
        remedy="Give organisations a ClickHouse server whose users are made by SQL (<access_management>1 in its "
        "users.xml), named by AAICLICK_CLICKHOUSE_URL; or run their workers with databases of your own.",
    )


async def _answers(tenant: ClickHouseTarget) -> bool:
    try:
        client = await _connect(tenant)
        await client.run("SELECT 1")
    except UnreachableError:
        raise
    except AaiclickError:
        return False
    return True


async def _connect(target: ClickHouseTarget) -> Any:
    """Heavy, and most workers never need it: loaded when it is."""
    return await importlib.import_module("aaiclick.data.client").connect(target)
