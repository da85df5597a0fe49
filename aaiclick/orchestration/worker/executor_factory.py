"""Create the Executor of a worker process from its ProcessSetup."""

from __future__ import annotations

import importlib
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from aaiclick.errors import EntrypointError
from aaiclick.orchestration.gateway import make_gateway
from aaiclick.orchestration.pg_lifecycle import PgLifecycleHandler
from aaiclick.orchestration.worker.attempt_telemetry import make_attempt_telemetry
from aaiclick.orchestration.worker.entrypoints import Entrypoints
from aaiclick.orchestration.worker.executor import Executor
from aaiclick.orchestration.worker.process_config import ProcessSetup
from aaiclick.settings import get_settings
from aaiclick.tracebacks import report_user_errors


async def make_executor(
    setup: ProcessSetup, threads: int, *, in_process: bool = False, on_import: Callable[[], None] | None = None
) -> Executor:
    """Import the user's modules, start reference counting, and create the executor.

    `in_process`: this is the user's own process, where functions of any module may be tasks. `on_import` is called
    after imports of the user's code.
    """
    if setup.memory_bytes is not None:
        # RLIMIT_DATA and not RLIMIT_AS: libraries reserve gigabytes of address space that they never use.
        resource.setrlimit(resource.RLIMIT_DATA, (setup.memory_bytes, setup.memory_bytes))
    if setup.directory and setup.directory not in sys.path:
        sys.path.insert(0, setup.directory)
    for module in setup.imports:
        _import_module(module)
    if on_import is not None:
        on_import()
    gateway = make_gateway(setup.work, setup.clickhouse, sends_logs=setup.sends_logs)
    tables = PgLifecycleHandler(gateway)
    await tables.start()
    return Executor(
        gateway=gateway,
        entrypoints=_make_entrypoints(setup, in_process, on_import),
        tables=tables,
        threads=threads,
        max_literal_bytes=get_settings().max_literal_bytes,
        telemetry=make_attempt_telemetry(),
    )


def _import_module(name: str) -> None:
    with report_user_errors(f"The import of {name}", "Correct the file and start the worker again."):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise EntrypointError(
                f"The module {name!r} cannot be imported: {error}.",
                remedy="Correct --import, or run the worker where the module is.",
            ) from None


def _make_entrypoints(setup: ProcessSetup, in_process: bool, on_import: Callable[[], None] | None) -> Entrypoints:
    """AAICLICK_TASK_MODULES excludes all other modules; `--import` alone adds to those below the directory."""
    directory = Path(setup.directory) if setup.directory and not setup.allowed_modules else None
    return Entrypoints(
        (*setup.allowed_modules, *setup.imports),
        directory=directory,
        data_directories=(get_settings().home, setup.log_directory),
        in_process=in_process,
        on_import=on_import,
    )
