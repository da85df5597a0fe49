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

LONG = ("tests/chaos/", "tests/e2e/", "tests/integration/worker/", *TOGETHER)
"""Long tests and packages run first, so that none is left alone at the end."""


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
    """More processes than cores, since many tests wait for leases and servers."""
    cores = os.cpu_count() or 1
    return cores + (cores + 1) // 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish() -> None:
    gc.freeze()  # keep imported modules out of later collections


def pytest_unconfigure() -> None:
    FORK_SERVER.close()
