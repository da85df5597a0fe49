"""Scheduling of tests over processes, and the shared fork server."""

from __future__ import annotations

import functools
import gc
import os
import sys
from typing import Any

import pytest

from tests.fork_server import FORK_SERVER

TOGETHER = ("tests/e2e/ui/", "tests/integration/cluster/", "tests/integration/store/")
"""Packages that share expensive fixtures: a browser, a cluster, PostgreSQL servers."""

LONG = (
    "tests/e2e/ui/", "tests/integration/engine/test_query_plans.py", "tests/integration/worker/test_supervisor.py",
    "tests/integration/engine/test_interleavings.py", "tests/integration/server/test_event_loop.py",
    "tests/integration/worker/test_outages.py", "tests/integration/engine/test_fault_scenarios.py",
    "tests/integration/catalog/test_cookbook.py", "tests/integration/server/test_openapi.py",
    "tests/integration/worker/test_commit_failpoints.py", "tests/integration/data/test_properties.py",
    "tests/integration/server/test_cli_pipelines.py", "tests/integration/server/test_client_package.py",
    "tests/integration/worker/test_clock.py", "tests/integration/catalog/test_emit.py", "tests/chaos/",
    "tests/integration/catalog/test_dag_runs.py", "tests/integration/worker/", "tests/e2e/", *TOGETHER,
)  # fmt: skip
"""Long files and packages run first, the longest of them at the beginning, so that none is left alone at the end.

Files that wait for leases (worker, catalog) and files that compute (engine, data) alternate.
"""


def pytest_configure() -> None:
    """Write bytecode, also in child processes: without it each of them compiles all modules again."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _share_clickhouse_settings() -> None:
    """Read the 1,500 settings of a server once per user: the driver reads them for each client, which takes 20 ms."""
    from clickhouse_connect.driver import asyncclient

    results: dict[tuple[object, ...], Any] = {}
    run_async = asyncclient.run_async

    async def initialise(sequence: Any, execute: Any) -> Any:
        if sequence.__name__ != "init_sequence":
            return await run_async(sequence, execute)
        client = execute.__self__
        key = (client.url, *map(str, client.headers.items()))
        if key not in results:
            results[key] = await run_async(sequence, execute)
            return results[key]
        await execute(next(sequence))  # the version: it fails if the server is down or refuses the user
        sequence.close()
        return results[key]

    asyncclient.run_async = initialise


def _share_ssl_contexts() -> None:
    """Read the certificates of all authorities once: httpx reads them for each client, which takes 30 ms."""
    from httpx._transports import default

    default.create_ssl_context = functools.cache(default.create_ssl_context)


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
    if "httpx" in sys.modules:
        _share_ssl_contexts()
    if "clickhouse_connect" in sys.modules:
        _share_clickhouse_settings()
    gc.freeze()  # keep imported modules out of later collections


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record how the run ended, for tests.repeat_failed."""
    if not hasattr(session.config, "workerinput") and (cache := getattr(session.config, "cache", None)):
        cache.set("aaiclick/exit_status", int(exitstatus))


def pytest_unconfigure() -> None:
    FORK_SERVER.close()
