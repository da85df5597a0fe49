"""`aaiclick restore`: replace both databases by those of a backup."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from uuid import uuid4

from aaiclick.backup import clickhouse_backup
from aaiclick.backup.create import CLICKHOUSE, DUMP, KEYS, Manifest
from aaiclick.backup.pg_dump_and_restore import restore_database
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import ConflictError
from aaiclick.local.home import Home
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store.migrate import get_current_revision, upgrade_if_needed
from aaiclick.store.postgres_connections import connect
from aaiclick.store.statements import statement
from aaiclick.store.tenancy.postgres_api_role import ensure_api_role


async def restore_backup(
    postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint, directory: Path, *, home: Home, replace: bool
) -> Manifest:
    """Restore a backup into empty databases, or with `replace` into any; nothing else may use them."""
    manifest = Manifest.read(directory)
    if not replace:
        await _refuse_work(postgres)
    _restore_keys(home, directory)
    client = await connect_clickhouse(clickhouse.with_database("system"))
    renamed = {name: clickhouse.database + name.removeprefix(manifest.database) for name in manifest.databases}
    target = manifest.target
    copy = None
    if not target:
        copy = home.clickhouse / "backups" / f"restore-{uuid4().hex}"
        shutil.copytree(directory / CLICKHOUSE, copy)
        target = f"File('{copy.name}')"
    try:
        await clickhouse_backup.restore_databases(client, renamed, target)
    finally:
        if copy is not None:
            shutil.rmtree(copy)
    await restore_database(postgres, directory / DUMP)
    await upgrade_if_needed(postgres)
    connection = await connect(postgres)
    try:
        await ensure_api_role(connection)
    finally:
        await connection.close()
    return manifest


async def _refuse_work(endpoint: PostgresEndpoint) -> None:
    """Raise ConflictError if the database has jobs, tasks, DAGs or organisations."""
    if await get_current_revision(endpoint) is None:
        return
    connection = await connect(endpoint)
    try:
        has_work = await connection.fetchval(statement("has_work"))
    finally:
        await connection.close()
    if has_work:
        raise ConflictError(
            f"{endpoint} is not empty.", remedy="Restore into new databases, or add --replace to delete their contents."
        )


def _restore_keys(home: Home, directory: Path) -> None:
    """Copy the key file of organisations' secrets, unless the home has another one."""
    saved, own = directory / KEYS, home.path / KEYS
    if not saved.exists():
        return
    if own.exists() and own.read_bytes() != saved.read_bytes():
        raise ConflictError(
            f"{own} differs from the key file of the backup; secrets of the backup could not be decrypted.",
            remedy=f"Move {own} away, or set AAICLICK_SECRETS_KEY to the keys of both files.",
        )
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copy(saved, own)
    os.chmod(own, 0o600)  # noqa: PTH101
