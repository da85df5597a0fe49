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

from aaiclick.cli.output import print_message
from aaiclick.cli.param_types import NAME, Number, split_names
from aaiclick.errors import SettingsError
from aaiclick.local import find_both
from aaiclick.missing_modules import WORKER_MODULES, check_installed
from aaiclick.orchestration.json_logging import make_json_handler
from aaiclick.orchestration.worker.process_config import ProcessSetup, WorkerConfig
from aaiclick.orchestration.worker.supervisor import Supervisor, SupervisorConfig
from aaiclick.server_addresses import PostgresEndpoint, RuntimeEndpoint, ServerEndpoint
from aaiclick.settings import get_logs_dir, get_settings
from aaiclick.store.engine.runtime_dispatches import runtime_queue
from aaiclick.store.migrate import prepare_schema
from aaiclick.tempdirs import temporary_directory


@click.group()
def worker() -> None:
    """Run tasks.

    \b
    aaiclick worker start --reload
    aaiclick worker start --queue mail --processes 2
    """


@worker.command("start")
@click.option(
    "--processes", type=click.IntRange(1, 256), default=None, help="Worker processes [default: one per core]."
)
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=16, show_default=True, help="Concurrent tasks per process."
)
@click.option("--queue", "queues", type=NAME, multiple=True, help="Queue to serve; may be repeated [default: all].")
@click.option(
    "--runtime", default=None, metavar="NAME[@ORG]",
    help="Serve only this runtime, and claim a task for each message of its SQS queue (AAICLICK_RUNTIMES).",
)  # fmt: skip
@click.option(
    "--import",
    "imports",
    multiple=True,
    callback=split_names,
    help="Modules to import at start; their functions and handlers may be tasks. With commas, or repeated.",
)
@click.option(
    "--isolation", type=click.Choice(["none", "process"]), default="none", show_default=True,
    help="Whether each task runs in a separate process.",
)  # fmt: skip
@click.option(
    "--memory-mb", type=click.IntRange(64), default=None,
    help="Memory limit for the data of each process; a task that needs more fails [default: no limit].",
)  # fmt: skip
@click.option(
    "--code-version", default=None, type=NAME,
    help="Version of your code, shown with each attempt [default: the git commit and a digest of the files].",
)  # fmt: skip
@click.option(
    "--register/--no-register", default=True, show_default=True,
    help="Register the @job functions of imported modules, and create the schedules that they declare.",
)  # fmt: skip
@click.option("--max-tasks", type=click.IntRange(1), default=None, help="Stop each process after this number of tasks.")
@click.option("--drain", is_flag=True, help="Stop when no task is left.")
@click.option("--reload", is_flag=True, help="Run new code when files change; running tasks finish with the old code.")
@click.option(
    "--stop-seconds", type=Number(0), default=30.0, show_default=True,
    help="Seconds that running tasks get to finish on shutdown.",
)  # fmt: skip
@click.option(
    "--grace-seconds", type=Number(0), default=5.0, show_default=True,
    help="Seconds that a cancelled task gets to stop before its process is killed.",
)  # fmt: skip
@click.option(
    "--server", default=None, help="URL of the server to use instead of the databases [default: AAICLICK_SERVER]."
)
@click.option(
    "--key",
    default=None,
    help="API key of that server; prefer AAICLICK_API_KEY, which is not visible in the process list.",
)
@click.option(
    "--shared-logs", is_flag=True,
    help="With a server: write logs to AAICLICK_LOG_DIR, shared with the server, instead of uploading them.",
)  # fmt: skip
def start_worker(
    processes: int | None,
    concurrency: int,
    queues: tuple[str, ...],
    runtime: str | None,
    imports: tuple[str, ...],
    isolation: str,
    memory_mb: int | None,
    code_version: str | None,
    register: bool,
    max_tasks: int | None,
    drain: bool,
    reload: bool,
    stop_seconds: float,
    grace_seconds: float,
    server: str | None,
    key: str | None,
    shared_logs: bool,
) -> None:
    """Run tasks until stopped. Ctrl-C finishes running tasks; a second Ctrl-C releases them at once.

    With --server or AAICLICK_SERVER no database is needed: the server provides the tasks of the API key's organisation.

    \b
    aaiclick worker start --reload
    aaiclick worker start --queue mails --processes 2 --import shop
    """
    check_installed(WORKER_MODULES)
    if get_settings().log_format == "json":
        logging.getLogger().addHandler(make_json_handler(sys.stderr))
    work_endpoint = server_endpoint(server, key)
    called_by = None
    if runtime is not None:
        if queues:
            raise click.UsageError("--runtime cannot be combined with --queue: a runtime has its own queue.")
        endpoint = runtime_endpoint(runtime)
        queues, called_by = (runtime_queue(endpoint.name),), endpoint.address
    sends_logs = work_endpoint is not None and not shared_logs
    with temporary_directory("aaiclick-logs-") if sends_logs else contextlib.nullcontext() as spool:
        supervisor_config = build_supervisor_config(
            work=work_endpoint,
            spool=spool,
            processes=processes or os.cpu_count() or 1,
            concurrency=concurrency,
            queues=queues,
            called_by=called_by,
            imports=imports,
            isolate=isolation == "process",
            memory_mb=memory_mb,
            code_version=code_version,
            registers_functions=register,
            max_tasks=max_tasks,
            drain=drain,
            reload=reload,
            stop_seconds=stop_seconds,
            grace_seconds=grace_seconds,
        )
        asyncio.run(_run_supervisor(supervisor_config))


def server_endpoint(url: str | None, key: str | None) -> ServerEndpoint | None:
    """Return the server to work for, if one is configured."""
    settings = get_settings()
    url = url or settings.server
    if url is None:
        return None
    secret = key or (settings.api_key.get_secret_value() if settings.api_key else "")
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"The server {url!r:.100} is not a URL.", remedy=f"Write http://{url} or https://{url}")
    return ServerEndpoint(url.rstrip("/"), secret)


def runtime_endpoint(text: str) -> RuntimeEndpoint:
    """Find a runtime by NAME or NAME@ORG in AAICLICK_RUNTIMES."""
    name, _, org = text.partition("@")
    if name == "lambda":
        raise click.UsageError("Lambda functions are not started by this command; see docs/runtimes.md.")
    for endpoint in get_settings().runtimes:
        if (endpoint.name, endpoint.org) == (name, org or None):
            return endpoint
    raise SettingsError(f"Runtime {text!r:.80} has no queue.", remedy=f"Set AAICLICK_RUNTIMES={text}=SQS_QUEUE_URL.")


def build_supervisor_config(
    *,
    processes: int,
    work: ServerEndpoint | None = None,
    spool: Path | None = None,
    concurrency: int = 16,
    queues: tuple[str, ...] = (),
    called_by: str | None = None,
    imports: tuple[str, ...] = (),
    isolate: bool = False,
    memory_mb: int | None = None,
    code_version: str | None = None,
    registers_functions: bool = True,
    max_tasks: int | None = None,
    drain: bool = False,
    reload: bool = False,
    stop_seconds: float = 30.0,
    grace_seconds: float = 5.0,
) -> SupervisorConfig:
    """Build the supervisor's configuration from the settings and options."""
    settings = get_settings()
    source, clickhouse = (work, None) if work is not None else find_both(settings)
    log_directory = spool or get_logs_dir(settings)
    worker_config = WorkerConfig(
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
        wakeup_queue_url=called_by,
        reload=reload,
        code_version=code_version,
        registers_functions=registers_functions,
    )
    memory = None if memory_mb is None else memory_mb * 1_000_000
    setup = ProcessSetup(
        source, clickhouse, log_directory, settings.task_modules, imports, str(Path.cwd()), memory, spool is not None
    )
    return SupervisorConfig(
        processes, worker_config, setup, settings.worker_heartbeat_interval_seconds, stop_seconds, settings.runtimes,
        settings.runtime_resend_seconds,
    )  # fmt: skip


async def _run_supervisor(config: SupervisorConfig) -> None:
    if isinstance(config.setup.work, PostgresEndpoint):
        await prepare_schema(config.setup.work, embedded=get_settings().postgres is None)
    else:
        await check_server(config.setup.work)
    supervisor = Supervisor(config)
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, _handle_stop_signal, supervisor)
    print_message(
        f"Worker started: {config.processes} processes with {config.worker.concurrency} concurrent tasks each, "
        f"{'queues ' + ', '.join(config.worker.queues) if config.worker.queues else 'all queues'} "
        f"of {config.setup.work}. Press Ctrl-C to stop."
    )
    await supervisor.run()


async def check_server(endpoint: ServerEndpoint) -> None:
    """Check that the server is reachable and accepts the key; later outages are retried without limit."""
    await importlib.import_module("aaiclick.orchestration.gateway.http_client").check_server(endpoint)


def _handle_stop_signal(supervisor: Supervisor) -> None:
    message = (
        "Releasing running tasks."
        if supervisor.stopping
        else "Finishing running tasks. Press Ctrl-C again to release them at once."
    )
    supervisor.stop()
    with contextlib.suppress(OSError):  # the terminal may be gone
        print_message(message)
