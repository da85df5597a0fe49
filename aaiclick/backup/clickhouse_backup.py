"""BACKUP and RESTORE of ClickHouse: the configured database and those of other organisations."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from uuid import uuid4

from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.data.types import quote_name, quote_text
from aaiclick.errors import SettingsError, StackError

POLL_SECONDS = 0.05
_TARGET = re.compile(r"(File|Disk|S3|AzureBlobStorage)\(.*\)", re.DOTALL)


def check_target(target: str) -> str:
    """Check the destination of a backup, such as `Disk('backups', 'monday')`."""
    if _TARGET.fullmatch(target.strip()) is None:
        raise SettingsError(
            f"{target!r:.80} is not a destination of ClickHouse.",
            remedy="Write File('NAME'), Disk('DISK', 'NAME') or S3('URL', 'KEY', 'SECRET').",
        )
    return target.strip()


async def list_databases(client: ClickHouseClient) -> list[str]:
    """List the configured database and those of other organisations."""
    if client.endpoint.cluster:
        raise SettingsError(
            "A ClickHouse cluster is not backed up by this command.",
            remedy="Use BACKUP … ON CLUSTER; docs/operations.md describes a backup by hand.",
        )
    configured = client.endpoint.database
    names: list[str] = (await client.read_text("SELECT name FROM system.databases")).column(0).to_pylist()
    of_an_org = re.compile(re.escape(configured) + "_[0-9a-f]{32}")
    return sorted(name for name in names if name == configured or of_an_org.fullmatch(name))


async def start_backup(client: ClickHouseClient, databases: Sequence[str], target: str) -> str:
    """Start a backup and return its id when the parts of all tables are collected; later changes are not in it."""
    backup_id = str(uuid4())
    names = ", ".join(f"DATABASE {quote_name(name)}" for name in databases)
    await client.run(f"BACKUP {names} TO {target} SETTINGS async = 1, id = {quote_text(backup_id)}")
    while True:
        status, files, _ = await _load_status(client, backup_id)
        if files > 0 or status != "CREATING_BACKUP":
            return backup_id
        await asyncio.sleep(POLL_SECONDS)


async def wait_for_backup(client: ClickHouseClient, backup_id: str) -> int:
    """Wait until a backup is written; return its size in bytes."""
    while True:
        status, _, size = await _load_status(client, backup_id)
        if status != "CREATING_BACKUP":
            return size
        await asyncio.sleep(POLL_SECONDS)


async def restore_databases(client: ClickHouseClient, renamed: Mapping[str, str], target: str) -> None:
    """Restore databases under new names; existing ones of these names are dropped first."""
    for name in renamed.values():
        await client.run(f"DROP DATABASE IF EXISTS {quote_name(name)} SYNC")
    names = ", ".join(f"DATABASE {quote_name(old)} AS {quote_name(new)}" for old, new in renamed.items())
    await client.run(f"RESTORE {names} FROM {target}")


async def _load_status(client: ClickHouseClient, backup_id: str) -> tuple[str, int, int]:
    """Return state, number of files and bytes of a backup; raises StackError if it failed."""
    result = await client.read_text(
        "SELECT toString(status) AS status, num_files, total_size, error FROM system.backups WHERE id = {id:String}",
        {"id": backup_id},
    )
    [row] = result.to_pylist()
    if row["error"]:
        raise StackError(
            f"ClickHouse refused the backup: {row['error']:.500}",
            remedy="Check the destination (--clickhouse-to) and the rights of the user.",
        )
    return row["status"], row["num_files"], row["total_size"]
