"""Scheduling of tests over processes, and the shared fork server."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import pytest

from tests.fork_server import FORK_SERVER

TOGETHER = ("tests/e2e/ui/", "tests/integration/cluster/", "tests/integration/store/")
"""Packages that share expensive fixtures: a browser, a cluster, PostgreSQL servers."""

LONG = (
    "tests/e2e/ui/", "tests/integration/worker/test_supervisor.py", "tests/integration/server/test_event_loop.py",
    "tests/integration/worker/test_clock.py", "tests/integration/catalog/test_emit.py", "tests/chaos/",
    "tests/integration/catalog/test_dag_runs.py", "tests/integration/worker/", "tests/e2e/", *TOGETHER,
)  # fmt: skip
"""Long files and packages run first, the longest of them at the beginning, so that none is left alone at the end."""


def pytest_configure() -> None:
    """Write bytecode, also in child processes: without it each of them compiles all modules again."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Run each file, and each package of TOGETHER, in one process, so that fixtures are created once."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((package for package in TOGETHER if file.startswith(package)), file)

    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many processes as cores: on average a test uses half a core, and waits for leases and servers."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        return next((number for number, prefix in enumerate(LONG) if item.nodeid.startswith(prefix)), len(LONG))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    gc.freeze()  # keep imported modules out of later collections


def pytest_unconfigure() -> None:
    FORK_SERVER.close()
