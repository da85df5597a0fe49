"""ClickHouse database and user of each organisation.

The default organisation uses the configured database. Each other organisation has its own database, and a user that
has no access outside of it. Its privileges are granted to a role, which its user and the users of its workers have
(`http_worker_clickhouse_users`). Only the latter are handed out: the organisation's own password stays in processes
that have the configured credential.

That password is derived from the configured one (HMAC), so nothing is stored: a process with the configured credential
can derive the password of every organisation, and the password of one reveals no other. Database, role and user are
created at the first use, and again when they are found missing.

A ClickHouse with users defined in files (the embedded one) has no user per organisation: there the configured user
accesses all databases, and HTTP workers get no credential. The same holds on a cluster: its nodes connect to each other
as the user of the cluster's configuration, so a user with the right to create Distributed tables, as Objects need
there, could write into any database.
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
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.store.enums import DEFAULT_ORG_ID

ENGINES = ("MergeTree", "ReplacingMergeTree", "Memory", "StripeLog", "TinyLog")
"""Engines of Objects and datasets. Others, such as File, URL and Distributed, give access outside of the database."""

READY_SECONDS = 60.0
"""TTL of the cache of databases that exist."""


def tenant_endpoint(admin: ClickHouseEndpoint, org_id: UUID) -> ClickHouseEndpoint:
    """Endpoint with the database and the user of an organisation."""
    if org_id == DEFAULT_ORG_ID:
        return admin
    name = f"{admin.database}_{org_id.hex}"
    return with_user(admin.with_database(name), name, derive_password(admin, name))


def derive_password(admin: ClickHouseEndpoint, name: str) -> str:
    """Derive the password of a user from the configured one."""
    return hmac.new(f"{admin.user}:{admin.password}".encode(), name.encode(), hashlib.sha256).hexdigest()


def with_user(node: ClickHouseEndpoint, name: str, secret: str) -> ClickHouseEndpoint:
    """The endpoint, and its other nodes, with another user."""
    others = tuple(with_user(other, name, secret) for other in node.others)
    return replace(node, user=name, password=secret, others=others)


def role_name(admin: ClickHouseEndpoint, org_id: UUID) -> str:
    """Name of the role with an organisation's privileges; operators may grant it more."""
    return f"{admin.database}_{org_id.hex}_role"


def role_statements(role: str, database: str) -> list[str]:
    """Idempotent statements that create a role with all privileges on a database."""
    privileges = (
        *(f"TABLE ENGINE ON {engine}" for engine in ENGINES),  # required by some servers
        "CREATE TEMPORARY TABLE ON *.*",  # required by table functions such as numbers()
        *(f"SELECT ON system.{table}" for table in ("one", "numbers", "parts")),
    )
    return [
        f"CREATE ROLE IF NOT EXISTS {quote_identifier(role)}",
        f"GRANT CURRENT GRANTS (ALL ON {quote_identifier(database)}.*) TO {quote_identifier(role)}",
        f"GRANT {', '.join(privileges)} TO {quote_identifier(role)}",
    ]


def user_statements(user: ClickHouseEndpoint, role: str, until: str = "") -> list[str]:
    """Idempotent statements that create a user with a role, optionally valid until a time."""
    name = quote_identifier(user.user)
    validity = f" VALID UNTIL '{until}'" if until else ""
    database = quote_identifier(user.database)
    identity = f"IDENTIFIED WITH sha256_password BY '{user.password}'{validity} DEFAULT DATABASE {database}"
    return [
        f"CREATE USER IF NOT EXISTS {name} {identity}",
        f"ALTER USER {name} {identity}",  # the configured password, and so the derived one, may have changed
        f"GRANT {quote_identifier(role)} TO {name}",
    ]


def quote_identifier(name: str) -> str:
    """Quote an identifier: the configured database may have any name."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


class TenantDatabases:
    """Creates databases and users of organisations, with a cache of those that exist."""

    def __init__(self, admin: ClickHouseEndpoint) -> None:
        self.admin = admin
        self._cache: dict[UUID, tuple[ClickHouseEndpoint, float]] = {}
        self._lock = asyncio.Lock()

    async def ensure_database(self, org_id: UUID) -> ClickHouseEndpoint:
        """Endpoint of an organisation's database, created if missing; with its own user if there can be one."""
        if org_id == DEFAULT_ORG_ID:
            return self.admin
        async with self._lock:
            cached = self._cache.get(org_id)
            if cached is None or cached[1] < time.monotonic():
                cached = self._cache[org_id] = await self._create_database(org_id), time.monotonic() + READY_SECONDS
            return cached[0]

    async def _create_database(self, org_id: UUID) -> ClickHouseEndpoint:
        tenant = tenant_endpoint(self.admin, org_id)
        if not self.admin.cluster and await _can_connect(tenant):
            return tenant
        for node in _cluster_nodes(self.admin):
            await (await connect_clickhouse(node)).run(
                f"CREATE DATABASE IF NOT EXISTS {quote_identifier(tenant.database)}"
            )
        if not self.admin.cluster:
            with suppress(UnauthorisedError):
                await create_tenant_user(self.admin, org_id)
                return tenant
        return self.admin.with_database(tenant.database)


async def create_tenant_user(admin: ClickHouseEndpoint, org_id: UUID) -> None:
    """Create the role and the user of an organisation."""
    tenant, role = tenant_endpoint(admin, org_id), role_name(admin, org_id)
    statements = [*role_statements(role, tenant.database), *user_statements(tenant, role)]
    try:
        client = await connect_clickhouse(admin)
        for statement in statements:
            await client.run(statement)
    except UnreachableError:
        raise
    except AaiclickError as error:
        raise no_users_error(admin, error.what.replace(tenant.password, "********")) from None


def _cluster_nodes(admin: ClickHouseEndpoint) -> list[ClickHouseEndpoint]:
    """Endpoints of the single servers: databases are created on each node of a cluster."""
    return [replace(node, cluster="", others=()) for node in (admin, *admin.others)]


def no_users_error(admin: ClickHouseEndpoint, reason: str) -> UnauthorisedError:
    return UnauthorisedError(
        f"The ClickHouse at {admin.host} cannot have a user per organisation: {reason}.",
        remedy="Set AAICLICK_CLICKHOUSE_URL to a ClickHouse server that allows users to be created by SQL "
        "(<access_management>1 in its users.xml), or run workers with direct access to the databases.",
    )


async def _can_connect(tenant: ClickHouseEndpoint) -> bool:
    try:
        client = await connect_clickhouse(tenant)
        await client.run("SELECT 1")
    except UnreachableError:
        raise
    except AaiclickError:
        return False
    return True


async def connect_clickhouse(endpoint: ClickHouseEndpoint) -> Any:
    """Connect to ClickHouse. The client is imported on first use, since most workers never need it."""
    return await importlib.import_module("aaiclick.data.runtime.clickhouse_client").connect(endpoint)
