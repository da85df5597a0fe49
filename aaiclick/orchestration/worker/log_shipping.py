"""Sends the logs of an HTTP worker's running attempts to the server.

The supervisor sends them, so that also the last lines of a task that blocks or kills its process arrive.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from aaiclick.errors import UnreachableError
from aaiclick.orchestration.gateway import GatewayConnection
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.postgres_connections import CONNECTION_ERRORS

SHIP_SECONDS = 1.0

_logger = logging.getLogger(__name__)


def spool_path(directory: Path, lease: Lease) -> Path:
    """The file that holds one attempt's log until the server has all of it."""
    return directory / f"{lease.task_id}-{lease.attempt}.log"


class LogShipper:
    """Remembers how much of each file in the spool directory was sent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sent: dict[Path, int] = {}

    async def has_unsent(self) -> bool:
        """Whether anything was written since the last call of `send_logs`."""
        sizes = await asyncio.to_thread(_file_sizes, self._directory)
        self._sent = {path: sent for path, sent in self._sent.items() if path in sizes}
        return any(self._sent.get(path) != size for path, size in sizes.items())

    async def send_logs(self, connection: GatewayConnection, worker_ids: Sequence[int]) -> None:
        """Send what attempts of these workers wrote since the last call."""
        for worker_id in worker_ids:
            await self._send_held_logs(connection, worker_id)

    async def send_final_logs(self, connection: GatewayConnection, worker_id: int) -> None:
        """Send the rest of the logs of an ended worker process, while its leases are valid; then delete them."""
        if not await asyncio.to_thread(_file_sizes, self._directory):
            return
        try:
            leases = await self._send_held_logs(connection, worker_id)
        except (UnreachableError, OSError):
            raise
        except CONNECTION_ERRORS as error:
            _logger.warning("Logs of worker %s were not sent: %s", worker_id, error)
            return
        for lease in leases:
            with suppress(OSError):
                spool_path(self._directory, lease).unlink()

    async def _send_held_logs(self, connection: GatewayConnection, worker_id: int) -> list[Lease]:
        leases = [task.lease for task in await connection.held_leases(worker_id)]
        for lease in leases:
            path = spool_path(self._directory, lease)
            self._sent[path] = await connection.send_log(lease, path, self._sent.get(path, 0))
        return leases


def _file_sizes(directory: Path) -> dict[Path, int]:
    """The size of each file."""
    sizes: dict[Path, int] = {}
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                sizes[Path(entry.path)] = entry.stat().st_size
    return sizes
