"""What pages read of DAGs, their sources and datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


async def list_dags(connection: Connection, org_id: UUID, *, limit: int, offset: int) -> list[asyncpg.Record]:
    """DAGs that serve, with how many versions and jobs they have and how their last run stands."""
    return await connection.fetch(statement("ui_dags"), org_id, limit, offset)


async def failed_deploys(
    connection: Connection, org_id: UUID, dag_name: str | None = None, *, limit: int = 20
) -> list[asyncpg.Record]:
    """Deploys that failed after what serves had begun to serve; each row has the job that was to fill the datasets."""
    return await connection.fetch(statement("ui_failed_deploys"), org_id, dag_name, limit)


async def definitions(connection: Connection, version_id: UUID) -> list[asyncpg.Record]:
    """The nodes of a version."""
    return await connection.fetch(statement("ui_definitions"), version_id)


async def runs(connection: Connection, org_id: UUID, version_ids: Sequence[UUID], limit: int) -> list[asyncpg.Record]:
    """The last jobs of some versions, newest first."""
    return await connection.fetch(statement("ui_dag_runs"), org_id, list(version_ids), limit)


async def dag_of(connection: Connection, version_id: UUID | None) -> str | None:
    """The name of the DAG that a version is of."""
    return None if version_id is None else await connection.fetchval(statement("ui_dag_of"), version_id)


async def sources(connection: Connection, org_id: UUID, *, limit: int, offset: int) -> list[asyncpg.Record]:
    """The sources of everything that serves, with when they start next and how they ended last."""
    return await connection.fetch(statement("ui_sources"), org_id, limit, offset)


async def roles_of(connection: Connection, org_id: UUID, user_id: UUID) -> list[str]:
    """Slugs of the org's roles that a user has."""
    return [row["slug"] for row in await connection.fetch(statement("ui_roles_of"), org_id, user_id)]


async def datasets(
    connection: Connection, org_id: UUID, roles: Sequence[str] | None, dataset_id: UUID | None = None,
    *, limit: int | None = None, offset: int = 0,
) -> list[asyncpg.Record]:  # fmt: skip
    """Datasets that are served and that one of the roles may read (None: all), or one of them."""
    readers = None if roles is None else list(roles)
    return await connection.fetch(statement("ui_datasets"), org_id, readers, dataset_id, limit, offset)


async def find_dags(connection: Connection, org_id: UUID, words: str, limit: int) -> list[str]:
    """Names of DAGs that serve and have these words in them."""
    return [row["dag_name"] for row in await connection.fetch(statement("ui_find_dags"), org_id, words, limit)]


async def find_datasets(
    connection: Connection, org_id: UUID, roles: Sequence[str] | None, words: str, limit: int
) -> list[asyncpg.Record]:
    """(id, name) of datasets as `datasets` has them, with these words in their names."""
    readers = None if roles is None else list(roles)
    return await connection.fetch(statement("ui_find_datasets"), org_id, readers, words, limit)


async def dataset_versions(connection: Connection, dataset_id: UUID, limit: int = 50) -> list[asyncpg.Record]:
    return await connection.fetch(statement("ui_dataset_versions"), dataset_id, limit)


async def serving_definitions(connection: Connection, org_id: UUID) -> list[asyncpg.Record]:
    """What makes what out of what, of everything that serves."""
    return await connection.fetch(statement("ui_serving_definitions"), org_id)


async def column_lineage(connection: Connection, dataset_id: UUID) -> list[asyncpg.Record]:
    """Columns of a dataset, and the columns that they come from."""
    return await connection.fetch(statement("ui_column_lineage"), dataset_id)
