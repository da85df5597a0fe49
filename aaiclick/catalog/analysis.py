"""Analysis of SQL and YAML that users wrote: in child processes with limits where a pool is set, else in this process.

sqlglot and PyYAML are Python code whose time is bounded by limits on their input, but not tightly enough for the event
loop of a server. A server sets a pool (`use_pool`); the command line and workers analyse in their own process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

from aaiclick.catalog.dags import load
from aaiclick.catalog.dags.model import Dag
from aaiclick.catalog.dags.rules import Finding
from aaiclick.catalog.errors import Problem
from aaiclick.catalog.queries import dataset_sql, parse
from aaiclick.catalog.queries.dataset_sql import Limits, PhysicalTable, PreparedQuery

P = ParamSpec("P")
T = TypeVar("T")


class Pool(Protocol):
    """Runs a function elsewhere."""

    async def run(self, function: Callable[..., Any], *args: Any) -> Any: ...


CACHED_CHARACTERS = 2_000_000
"""Texts of the DAGs in the cache."""

_pools: list[tuple[asyncio.AbstractEventLoop, Pool]] = []
"""With their event loops: a pool serves the loop that it was set in, and no other of the process."""

_loaded: dict[str, Dag] = {}


@contextmanager
def use_pool(pool: Pool) -> Generator[None]:
    """Analyse in this pool until the block ends, in the running event loop."""
    entry = asyncio.get_running_loop(), pool
    _pools.append(entry)
    try:
        yield
    finally:
        _pools.remove(entry)


async def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function of a module, whose arguments and result can be pickled."""
    loop = asyncio.get_running_loop()
    pool = next((pool for owner, pool in reversed(_pools) if owner is loop), None)
    if pool is None:
        return function(*args, **kwargs)
    return await pool.run(function, *args, **kwargs)


async def load_dag(text: str, file: str = "dag.yaml") -> Dag:
    """The DAG in a text; raises DagError with every error in it. DAGs that were loaded lately are cached."""
    dag = _loaded.pop(text, None) or await run(load.load_dag, text, file)
    _loaded[text] = dag
    while sum(map(len, _loaded)) > CACHED_CHARACTERS:
        del _loaded[next(iter(_loaded))]
    return dag


async def locate_findings(text: str, findings: Iterable[Finding]) -> list[Problem]:
    """Findings about a text that is a DAG, with their places."""
    return await run(load.located, text, list(findings))


async def datasets_read(text: str) -> frozenset[str]:
    """The names of the datasets that a query reads."""
    return await run(parse.datasets_read, text)


async def prepare_query(text: str, tables: Mapping[str, PhysicalTable], limits: Limits | None = None) -> PreparedQuery:
    """The query to run; raises QueryRefusedError for one that is not allowed or names what is not in `tables`."""
    return await run(dataset_sql.prepare_query, text, dict(tables), limits)
