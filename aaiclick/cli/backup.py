"""`aaiclick backup` and `aaiclick restore`: both databases of one moment."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import click

from aaiclick.backup.clickhouse_backup import check_target
from aaiclick.backup.create import Manifest, create_backup
from aaiclick.backup.restore import restore_backup
from aaiclick.cli import remote
from aaiclick.cli.output import print_message
from aaiclick.errors import SettingsError
from aaiclick.local import find_both
from aaiclick.local.home import Home
from aaiclick.settings import Settings, get_settings
from aaiclick.store.migrate import prepare_schema

DIRECTORY = click.Path(path_type=Path, resolve_path=True, file_okay=False)


@click.command()
@click.argument("directory", type=DIRECTORY)
@click.option(
    "--clickhouse-to", metavar="DESTINATION", default=None,
    help="Where your own ClickHouse server writes to, for example \"Disk('backups', 'monday')\".",
)  # fmt: skip
def backup(directory: Path, clickhouse_to: str | None) -> None:
    """Back up PostgreSQL and ClickHouse of one moment into a new DIRECTORY, while everything runs."""
    if remote.is_remote():
        remote.refuse_remote("'backup'")
    settings = get_settings()
    if clickhouse_to is None and settings.clickhouse is not None:
        raise SettingsError(
            "Your own ClickHouse server cannot write into this directory.",
            remedy="Name a destination that it can write to: --clickhouse-to \"Disk('backups', 'NAME')\"",
        )
    target = None if clickhouse_to is None else check_target(clickhouse_to)
    manifest = asyncio.run(_create_backup(settings, directory, target))
    print_message(
        f"Backup of {manifest.taken_at} written to {directory}: {manifest.bytes / 1e6:.1f} MB, "
        f"{len(manifest.databases)} databases in ClickHouse; writes waited for {manifest.locked_seconds:.2f} s."
    )


async def _create_backup(settings: Settings, directory: Path, target: str | None) -> Manifest:
    postgres, clickhouse = await asyncio.to_thread(find_both, settings)
    await prepare_schema(postgres, embedded=settings.postgres is None)
    return await create_backup(postgres, clickhouse, directory, home=Home(settings.home), target=target)


@click.command()
@click.argument("directory", type=DIRECTORY)
@click.option("--replace", is_flag=True, help="Delete the contents of databases that are not empty.")
def restore(directory: Path, replace: bool) -> int:
    """Restore a backup from DIRECTORY and check the result with 'doctor'. Stop workers and servers first."""
    if remote.is_remote():
        remote.refuse_remote("'restore'")
    settings = get_settings()
    postgres, clickhouse = find_both(settings)
    manifest = asyncio.run(restore_backup(postgres, clickhouse, directory, home=Home(settings.home), replace=replace))
    print_message(f"Restored the backup of {manifest.taken_at}, written by aaiclick {manifest.version}.")
    return importlib.import_module("aaiclick.cli.doctor").run_checks("table")
