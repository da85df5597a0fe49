"""`aaiclick background start|stop`: what drops tables that nobody needs, as a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys

import click

from aaiclick.cli import remote
from aaiclick.cli.kinds import Number
from aaiclick.cli.output import note
from aaiclick.cli.single import Single
from aaiclick.local import find_both
from aaiclick.local.home import Home
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper
from aaiclick.settings import get_settings
from aaiclick.store.migrate import prepare
from aaiclick.targets import ClickHouseTarget, PostgresTarget


@click.group()
def background() -> None:
    """Drop tables that nobody needs, beside or without workers."""


@background.command()
@click.option("--cleanup-seconds", type=Number(0.1), default=10.0, show_default=True,
              help="How often released tables are dropped.")  # fmt: skip
@click.option("--sweep-seconds", type=Number(0.1), default=300.0, show_default=True,
              help="How often tables that nobody knows are looked for.")  # fmt: skip
@click.option("--max-age-seconds", type=Number(0), default=3600.0, show_default=True,
              help="Seconds that such a table must have existed.")  # fmt: skip
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input ends.")
def start(cleanup_seconds: float, sweep_seconds: float, max_age_seconds: float, with_parent: bool) -> None:
    """Run cleanup and sweeper until SIGTERM or Ctrl-C. Several, here or on other machines, do no harm."""
    if remote.is_remote():
        remote.refuse("'background start'")
    settings = get_settings()
    home = Home(settings.home)
    home.prepare()
    with _single(home).be() as running:
        if running is not None:
            note(f"It runs already (pid {running}).")
            return
        postgres, clickhouse = find_both(settings)
        cleanup = PgCleanupWorker(cleanup_seconds, postgres=postgres, clickhouse=clickhouse)
        sweeper = TableSweeper(max_age_seconds, sweep_seconds, postgres=postgres, clickhouse=clickhouse)
        asyncio.run(_run(postgres, clickhouse, cleanup, sweeper, with_parent))


@background.command()
def stop() -> None:
    """Stop the background process of this AAICLICK_HOME."""
    note("Stopped." if _single(Home(get_settings().home)).end() else "It was not running.")


async def _run(
    postgres: PostgresTarget,
    clickhouse: ClickHouseTarget,
    cleanup: PgCleanupWorker,
    sweeper: TableSweeper,
    with_parent: bool,
) -> None:
    await prepare(postgres, embedded=get_settings().postgres is None)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stopping.set)
    if with_parent:
        loop.add_reader(sys.stdin, stopping.set)
    note(f"Cleanup and sweeper of {clickhouse}, by {postgres}. Ctrl-C stops them.")
    async with cleanup, sweeper:
        await stopping.wait()


def _single(home: Home) -> Single:
    return Single(home.path / "background.lock")
