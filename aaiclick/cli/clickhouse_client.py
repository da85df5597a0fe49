"""ClickHouse client for the database of an organisation."""

from __future__ import annotations

from uuid import UUID

from aaiclick.data.runtime.clickhouse_client import Client, connect
from aaiclick.local import clickhouse_endpoint
from aaiclick.orchestration.tenant_databases import TenantDatabases


async def connect_clickhouse(org_id: UUID) -> Client:
    """Connect to the ClickHouse database of an organisation."""
    return await connect(await TenantDatabases(await clickhouse_endpoint()).ensure_database(org_id))
