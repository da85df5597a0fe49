"""What all tests share."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest

from tests.hatchery import HATCHERY

TOGETHER = ("tests/e2e/ui/", "tests/integration/cluster/", "tests/integration/store/")
"""Packages whose files share what is dear to make: a site and a browser, a cluster, servers of PostgreSQL."""

LONG = ("tests/chaos/", "tests/e2e/ui/", "tests/integration/worker/")
"""They come first: a process that has one left at the end would work alone."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A file stays with one process, and so do some packages: what their tests share is made once."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((package for package in TOGETHER if file.startswith(package)), file)

    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """More processes than cores: many a test waits, for a lease to run out or for a server to come back."""
    cores = os.cpu_count() or 1
    return cores + (cores + 1) // 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported and collected stays: looking through it again and again would only cost


def pytest_unconfigure() -> None:
    HATCHERY.close()
