"""How commands reach ClickHouse: in the database of the organisation that they are about."""

from __future__ import annotations

from uuid import UUID

from aaiclick.data.client import Client, connect
from aaiclick.local import clickhouse_target
from aaiclick.orchestration.tenants import Tenants


async def clickhouse_of(org_id: UUID) -> Client:
    """Where the Objects of an org are."""
    return await connect(await Tenants(await clickhouse_target()).ready(org_id))
