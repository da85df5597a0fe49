"""pg_dump and pg_restore: those of the embedded server, which are not older than any supported one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from aaiclick.errors import StackError
from aaiclick.local.postgres_cluster import find_binaries, server_environment
from aaiclick.server_addresses import PostgresEndpoint

RESTORE_OPTIONS = ("--clean", "--if-exists", "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
"""The dump has grants for the role of the API, but not the role: it is created after the restore."""


async def dump_database(endpoint: PostgresEndpoint, file: Path, snapshot: str) -> None:
    """Dump a database as it was at an exported snapshot."""
    await _run_program("pg_dump", endpoint, "--format=custom", f"--snapshot={snapshot}", f"--file={file}")


async def restore_database(endpoint: PostgresEndpoint, file: Path) -> None:
    """Replace the tables of a database by those of a dump, all or none."""
    await _run_program("pg_restore", endpoint, *RESTORE_OPTIONS, str(file))


def _find_program(name: str) -> Path:
    try:
        return find_binaries() / name
    except StackError:
        on_path = shutil.which(name)
        if on_path is None:
            raise StackError(
                f"{name} is not installed.", remedy="Install aaiclick, or PostgreSQL's client programs."
            ) from None
        return Path(on_path)


async def _run_program(name: str, endpoint: PostgresEndpoint, *arguments: str) -> None:
    """Run a program; the password is passed in the environment, since other users can see arguments."""
    url = urlsplit(endpoint.dsn)
    without_password = urlunsplit(url._replace(netloc=url.netloc.replace(f":{url.password}@", "@", 1)))
    environment = server_environment() | ({"PGPASSWORD": endpoint.password} if endpoint.password else {})
    process = await asyncio.create_subprocess_exec(
        _find_program(name), f"--dbname={without_password}", *arguments, env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, output = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise StackError(f"{name} failed for {endpoint}: {output.decode(errors='replace').strip()[-1000:]}")
