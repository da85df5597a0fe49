"""The part of a worker process that runs tasks, made from what its supervisor has told it."""

from __future__ import annotations

import importlib
import sys

from aaiclick.errors import EntrypointError
from aaiclick.orchestration.lifecycle import PgLifecycleHandler
from aaiclick.orchestration.worker.entrypoints import Entrypoints
from aaiclick.orchestration.worker.executor import Executor
from aaiclick.orchestration.worker.orders import Setup


async def make_executor(setup: Setup, threads: int) -> Executor:
    """An executor for this process: the user's modules imported, the tables of its tasks looked after."""
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
    tables = PgLifecycleHandler(setup.postgres)
    await tables.start()
    return Executor(
        postgres=setup.postgres,
        clickhouse=setup.clickhouse,
        entrypoints=Entrypoints(setup.allowed_modules),
        tables=tables,
        threads=threads,
    )
