"""`aaiclick background start|stop`: cleanup of unused tables in a separate process."""

from __future__ import annotations

import asyncio
import signal
import sys

import click

from aaiclick.cli import remote
from aaiclick.cli.output import print_message
from aaiclick.cli.param_types import Number
from aaiclick.cli.pidfile import PidFile
from aaiclick.local import find_both
from aaiclick.local.home import Home
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.migrate import prepare_schema


@click.group()
def background() -> None:
    """Drop unused ClickHouse tables in a separate process.

    \b
    aaiclick background start
    """


@background.command("start")
@click.option("--cleanup-seconds", type=Number(0.1), default=10.0, show_default=True,
              help="Seconds between drops of released tables.")  # fmt: skip
@click.option("--sweep-seconds", type=Number(0.1), default=300.0, show_default=True,
              help="Seconds between searches for orphaned tables.")  # fmt: skip
@click.option("--max-age-seconds", type=Number(0), default=3600.0, show_default=True,
              help="Minimum age of an orphaned table.")  # fmt: skip
@click.option("--with-parent", is_flag=True, hidden=True, help="Stop when standard input is closed.")
def start_background(cleanup_seconds: float, sweep_seconds: float, max_age_seconds: float, with_parent: bool) -> None:
    """Run cleanup and sweeper until SIGTERM or Ctrl-C. Several may run at the same time."""
    if remote.is_remote():
        remote.refuse_remote("'background start'")
    settings = get_settings()
    home = Home(settings.home)
    home.prepare()
    with _pid_file(home).hold() as running:
        if running is not None:
            print_message(f"Already running (pid {running}).")
            return
        postgres, clickhouse = find_both(settings)
        cleanup = PgCleanupWorker(cleanup_seconds, postgres=postgres, clickhouse=clickhouse)
        sweeper = TableSweeper(max_age_seconds, sweep_seconds, postgres=postgres, clickhouse=clickhouse)
        asyncio.run(_run_loops(postgres, clickhouse, cleanup, sweeper, with_parent))


@background.command("stop")
def stop_background() -> None:
    """Stop the background process of this AAICLICK_HOME."""
    print_message("Stopped." if _pid_file(Home(get_settings().home)).stop_process() else "Not running.")


async def _run_loops(
    postgres: PostgresEndpoint,
    clickhouse: ClickHouseEndpoint,
    cleanup: PgCleanupWorker,
    sweeper: TableSweeper,
    with_parent: bool,
) -> None:
    await prepare_schema(postgres, embedded=get_settings().postgres is None)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stopping.set)
    if with_parent:
        loop.add_reader(sys.stdin, stopping.set)
    print_message(f"Cleanup and sweeper are running for {clickhouse} and {postgres}. Press Ctrl-C to stop.")
    async with cleanup, sweeper:
        await stopping.wait()


def _pid_file(home: Home) -> PidFile:
    return PidFile(home.path / "background.lock")
