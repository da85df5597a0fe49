"""Queries of the web UI for DAGs, sources and datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.catalog.datasets import Reader, ServedDataset
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


async def list_dags(connection: Connection, org_id: UUID, *, limit: int, offset: int) -> list[asyncpg.Record]:
    """Serving DAGs with their numbers of versions and jobs and the state of their last run."""
    return await connection.fetch(statement("list_dags"), org_id, limit, offset)


async def list_failed_deploys(
    connection: Connection, org_id: UUID, dag_name: str | None = None, *, limit: int = 20
) -> list[asyncpg.Record]:
    """Failed deploys newer than the serving version, each with its fill job."""
    return await connection.fetch(statement("list_failed_deploys"), org_id, dag_name, limit)


async def list_version_definitions(connection: Connection, version_id: UUID) -> list[asyncpg.Record]:
    """Definitions of a version."""
    return await connection.fetch(statement("list_version_definitions"), version_id)


async def list_dag_runs(
    connection: Connection, org_id: UUID, version_ids: Sequence[UUID], limit: int
) -> list[asyncpg.Record]:
    """Last jobs of some versions, newest first."""
    return await connection.fetch(statement("list_dag_runs"), org_id, list(version_ids), limit)


async def find_dag_name(connection: Connection, version_id: UUID | None) -> str | None:
    """The name of the DAG of a version."""
    return None if version_id is None else await connection.fetchval(statement("find_dag_name"), version_id)


async def list_dag_sources(connection: Connection, org_id: UUID, *, limit: int, offset: int) -> list[asyncpg.Record]:
    """Sources of all serving versions, with their next start and last outcome."""
    return await connection.fetch(statement("list_dag_sources"), org_id, limit, offset)


async def list_user_roles(connection: Connection, org_id: UUID, user_id: UUID) -> list[str]:
    """Slugs of a user's roles in the org."""
    return [row["slug"] for row in await connection.fetch(statement("list_user_roles"), org_id, user_id)]


@dataclass(frozen=True, slots=True)
class ListedDataset(ServedDataset):
    """A dataset with its number of versions."""

    created_at: datetime
    versions: int


async def list_datasets(
    connection: Connection, reader: Reader, *, limit: int | None = None, offset: int = 0
) -> list[ListedDataset]:
    """Served datasets that the reader may read."""
    roles = None if reader.roles is None else sorted(reader.roles)
    rows = await connection.fetch(statement("list_datasets"), reader.org_id, roles, limit, offset)
    return [ListedDataset(**row) for row in rows]


async def find_dags(connection: Connection, org_id: UUID, search: str, limit: int) -> list[str]:
    """Names of serving DAGs that contain `search`."""
    return [row["dag_name"] for row in await connection.fetch(statement("find_dags"), org_id, search, limit)]


async def find_datasets(connection: Connection, reader: Reader, search: str, limit: int) -> list[asyncpg.Record]:
    """(id, name) of the datasets of `list_datasets` that contain `search` in their names."""
    roles = None if reader.roles is None else sorted(reader.roles)
    return await connection.fetch(statement("find_datasets"), reader.org_id, roles, search, limit)


async def list_dataset_versions(connection: Connection, dataset_id: UUID, limit: int = 50) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_dataset_versions"), dataset_id, limit)


async def list_lineage_definitions(connection: Connection, org_id: UUID) -> list[asyncpg.Record]:
    """Serving definitions with their input and output datasets, for the lineage graph."""
    return await connection.fetch(statement("list_lineage_definitions"), org_id)


async def list_column_lineage(connection: Connection, dataset_id: UUID) -> list[asyncpg.Record]:
    """Columns of a dataset, and the columns they are computed from."""
    return await connection.fetch(statement("list_column_lineage"), dataset_id)
