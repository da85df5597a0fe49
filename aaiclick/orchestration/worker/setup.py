"""The part of a worker process that runs tasks, made from what its supervisor has told it."""

from __future__ import annotations

import importlib
import resource
import sys
from pathlib import Path

from aaiclick.errors import EntrypointError
from aaiclick.orchestration.lifecycle import PgLifecycleHandler
from aaiclick.orchestration.transport import make_transport
from aaiclick.orchestration.worker.entrypoints import Entrypoints
from aaiclick.orchestration.worker.executor import Executor
from aaiclick.orchestration.worker.orders import Setup
from aaiclick.orchestration.worker.witness import find_witness
from aaiclick.settings import get_settings


async def make_executor(setup: Setup, threads: int, *, in_process: bool = False) -> Executor:
    """An executor for this process: the user's modules imported, the tables of its tasks looked after.

    `in_process`: this is the user's own process, whose functions may be tasks wherever they are defined.
    """
    if setup.memory_bytes is not None:
        # Data and not the address space: libraries reserve gigabytes of that and never touch them.
        resource.setrlimit(resource.RLIMIT_DATA, (setup.memory_bytes, setup.memory_bytes))
    if setup.directory and setup.directory not in sys.path:
        sys.path.insert(0, setup.directory)
    for module in setup.imports:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise EntrypointError(
                f"The module {module!r} cannot be imported: {error}.",
                remedy="Correct --import, or run the worker where the module is.",
            ) from error
    transport = make_transport(setup.work, setup.clickhouse, sends_logs=setup.sends_logs)
    tables = PgLifecycleHandler(transport)
    await tables.start()
    return Executor(
        work=setup.work,
        transport=transport,
        entrypoints=_entrypoints(setup, in_process),
        tables=tables,
        threads=threads,
        witness=find_witness(),
    )


def _entrypoints(setup: Setup, in_process: bool) -> Entrypoints:
    """AAICLICK_TASK_MODULES excludes all other modules; `--import` alone adds to those below the directory."""
    directory = Path(setup.directory) if setup.directory and not setup.allowed_modules else None
    return Entrypoints(
        (*setup.allowed_modules, *setup.imports),
        directory=directory,
        data_directories=(get_settings().home, setup.log_directory),
        in_process=in_process,
    )
