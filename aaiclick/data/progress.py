"""Progress of the queries of a DataContext, which the synchronous API shows on a terminal or in a notebook."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aaiclick.data.context import DataContext
from aaiclick.errors import AaiclickError

DELAY_SECONDS = 2
"""Shorter queries show no progress."""

INTERVAL_SECONDS = 0.5
_RUNNING = (
    "SELECT toInt64(sum(read_rows)) AS rows, toInt64(sum(total_rows_approx)) AS total, toInt64(sum(memory_usage)) AS"
    " bytes FROM system.processes WHERE startsWith(query_id, {prefix:String}) AND query_id != queryID()"
    " AND user = currentUser() HAVING count() > 0"
)


@dataclass(frozen=True)
class QueryProgress:
    """Rows that the running queries have read, of about `total` (0 if unknown), and their memory."""

    rows: int
    total: int
    bytes: int

    def __str__(self) -> str:
        total = f" of {self.total:,}" if self.total >= self.rows > 0 else ""
        return f"{self.rows:,}{total} rows, {self.bytes / 1e6:,.0f} MB"


async def iter_progress(context: DataContext) -> AsyncIterator[QueryProgress]:
    """Yield the progress of the queries that run in the context, while there are any."""
    while True:
        running = await context.client.read_text(
            _RUNNING, {"prefix": context.query_prefix}, query_id=context.query_id()
        )
        for row in running.to_pylist():
            yield QueryProgress(**row)
        await asyncio.sleep(INTERVAL_SECONDS)


def shows_progress() -> bool:
    """Whether stderr is a terminal, or this process runs a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


async def show_progress(context: DataContext) -> None:
    """Show the progress of long queries on stderr until cancelled."""
    await asyncio.sleep(DELAY_SECONDS)
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        try:
            async for progress in iter_progress(context):
                status.update(str(progress))
        except AaiclickError:  # without the right to read system.processes there is no progress
            return
