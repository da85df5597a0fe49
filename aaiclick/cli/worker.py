"""`aaiclick worker start`: run tasks."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sys
from pathlib import Path

import click

from aaiclick.cli.kinds import Number
from aaiclick.cli.output import note
from aaiclick.errors import SettingsError
from aaiclick.local import find_both
from aaiclick.orchestration.structured import json_handler
from aaiclick.orchestration.worker.orders import Duty, Setup
from aaiclick.orchestration.worker.supervisor import Plan, Supervisor
from aaiclick.scratch import scratch_directory
from aaiclick.settings import get_logs_dir, get_settings
from aaiclick.store.dispatches import queue_of
from aaiclick.store.migrate import prepare
from aaiclick.targets import PostgresTarget, RuntimeTarget, ServerTarget


@click.group()
def worker() -> None:
    """Run tasks."""


@worker.command()
@click.option("--processes", type=click.IntRange(1, 256), default=None, help="Processes to run [default: one a core].")
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=16, show_default=True, help="Tasks at once in each."
)
@click.option("--queue", "queues", multiple=True, help="Queue to serve; may be given several times [default: all].")
@click.option(
    "--runtime", default=None, metavar="NAME[@ORG]",
    help="Be a worker of this runtime: take its tasks alone, when a message of its queue (AAICLICK_RUNTIMES) says so.",
)  # fmt: skip
@click.option(
    "--import",
    "imports",
    multiple=True,
    help="Module to import first, and whose functions and handlers may be tasks; may be given several times.",
)
@click.option(
    "--isolation", type=click.Choice(["none", "process"]), default="none", show_default=True,
    help="Whether each task runs in a process of its own.",
)  # fmt: skip
@click.option(
    "--memory-mb", type=click.IntRange(64), default=None,
    help="Memory for the data of each process: a task that needs more fails, the others go on [default: no limit].",
)  # fmt: skip
@click.option("--max-tasks", type=click.IntRange(1), default=None, help="End after that many tasks in each process.")
@click.option("--drain", is_flag=True, help="End when there is nothing left to do.")
@click.option(
    "--stop-seconds", type=Number(0), default=30.0, show_default=True,
    help="How long running tasks may take to finish when told to stop.",
)  # fmt: skip
@click.option(
    "--grace-seconds", type=Number(0), default=5.0, show_default=True,
    help="How long a task may take to end once it is told to, before its process is killed.",
)  # fmt: skip
@click.option("--server", default=None, help="Server to work for instead of databases [default: AAICLICK_SERVER].")
@click.option("--key", default=None, help="Key to that server; rather set AAICLICK_API_KEY, which others do not see.")
@click.option(
    "--shared-logs", is_flag=True,
    help="With a server: write logs to AAICLICK_LOG_DIR, which the server reads too, instead of sending them.",
)  # fmt: skip
def start(
    processes: int | None,
    concurrency: int,
    queues: tuple[str, ...],
    runtime: str | None,
    imports: tuple[str, ...],
    isolation: str,
    memory_mb: int | None,
    max_tasks: int | None,
    drain: bool,
    stop_seconds: float,
    grace_seconds: float,
    server: str | None,
    key: str | None,
    shared_logs: bool,
) -> None:
    """Run tasks until told to stop: Ctrl-C finishes what runs, a second one gives it back at once.

    With --server or AAICLICK_SERVER it needs no database: the server hands it the work of the key's organisation.
    """
    if get_settings().log_format == "json":
        logging.getLogger().addHandler(json_handler(sys.stderr))
    work = server_target(server, key)
    called_by = None
    if runtime is not None:
        if queues:
            raise click.UsageError("--runtime and --queue exclude each other: a runtime has a queue of its own.")
        target = runtime_target(runtime)
        queues, called_by = (queue_of(target.name),), target.place
    sends_logs = work is not None and not shared_logs
    with scratch_directory("aaiclick-logs-") if sends_logs else contextlib.nullcontext() as spool:
        plan = make_plan(
            work=work,
            spool=spool,
            processes=processes or os.cpu_count() or 1,
            concurrency=concurrency,
            queues=queues,
            called_by=called_by,
            imports=imports,
            isolate=isolation == "process",
            memory_mb=memory_mb,
            max_tasks=max_tasks,
            drain=drain,
            stop_seconds=stop_seconds,
            grace_seconds=grace_seconds,
        )
        asyncio.run(_run(plan))


def server_target(url: str | None, key: str | None) -> ServerTarget | None:
    """The server to work for, if one is named."""
    settings = get_settings()
    url = url or settings.server
    if url is None:
        return None
    secret = key or (settings.api_key.get_secret_value() if settings.api_key else "")
    return ServerTarget(url.rstrip("/"), secret)


def runtime_target(text: str) -> RuntimeTarget:
    """The runtime that a worker is to be of, by its name and that of its organisation."""
    name, _, org = text.partition("@")
    if name == "lambda":
        raise click.UsageError("Functions of Lambda are not started here: docs/runtimes.md says how they are set up.")
    for target in get_settings().runtimes:
        if (target.name, target.org) == (name, org or None):
            return target
    raise SettingsError(
        f"The runtime {text!r:.80} has no queue.", remedy=f"Set AAICLICK_RUNTIMES={text}=SQS_QUEUE_URL."
    )


def make_plan(
    *,
    processes: int,
    work: ServerTarget | None = None,
    spool: Path | None = None,
    concurrency: int = 16,
    queues: tuple[str, ...] = (),
    called_by: str | None = None,
    imports: tuple[str, ...] = (),
    isolate: bool = False,
    memory_mb: int | None = None,
    max_tasks: int | None = None,
    drain: bool = False,
    stop_seconds: float = 30.0,
    grace_seconds: float = 5.0,
) -> Plan:
    """A worker by the settings of this process, on the servers they name or the embedded ones."""
    settings = get_settings()
    source, clickhouse = (work, None) if work is not None else find_both(settings)
    log_directory = spool or get_logs_dir(settings)
    duty = Duty(
        worker_id=0,
        queues=queues,
        concurrency=concurrency,
        lease_seconds=settings.worker_timeout_seconds,
        task_timeout_seconds=settings.worker_task_timeout_seconds,
        grace_seconds=grace_seconds,
        log_directory=log_directory,
        isolate=isolate,
        max_tasks=max_tasks,
        drain=drain,
        called_by=called_by,
    )
    memory = None if memory_mb is None else memory_mb * 1_000_000
    setup = Setup(
        source, clickhouse, log_directory, settings.task_modules, imports, str(Path.cwd()), memory, spool is not None
    )
    return Plan(
        processes, duty, setup, settings.worker_heartbeat_interval_seconds, stop_seconds, settings.runtimes,
        settings.runtime_again_seconds,
    )  # fmt: skip


async def _run(plan: Plan) -> None:
    if isinstance(plan.setup.work, PostgresTarget):
        await prepare(plan.setup.work, embedded=get_settings().postgres is None)
    else:
        await check_server(plan.setup.work)
    supervisor = Supervisor(plan)
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, _stop, supervisor)
    note(
        f"Worker of {plan.processes} processes with {plan.duty.concurrency} tasks at once, on "
        f"{'queues ' + ', '.join(plan.duty.queues) if plan.duty.queues else 'all queues'} of {plan.setup.work}. "
        "Ctrl-C stops it."
    )
    await supervisor.run()


async def check_server(target: ServerTarget) -> None:
    """Ask whether it is there and takes the key: once it works, a worker never gives up."""
    await importlib.import_module("aaiclick.orchestration.transport.remote").check(target)


def _stop(supervisor: Supervisor) -> None:
    note("Giving back what runs." if supervisor.stopping else "Finishing what runs. Once more to give it back at once.")
    supervisor.stop()
