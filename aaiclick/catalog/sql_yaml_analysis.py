"""Analysis of users' SQL and YAML: in a pool of limited child processes if one is set, else in this process.

The run time of sqlglot and PyYAML is bounded by limits on their input, but not tightly enough for the event loop of a
server. A server sets a pool (`use_pool`); the CLI and workers analyse in their own process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar

from aaiclick.catalog.dags import load
from aaiclick.catalog.dags.findings import Finding
from aaiclick.catalog.dags.model import Dag
from aaiclick.catalog.errors import DagProblem
from aaiclick.catalog.queries import select_parser, table_rewrite
from aaiclick.catalog.queries.table_rewrite import PhysicalTable, PreparedQuery, QueryLimits

P = ParamSpec("P")
T = TypeVar("T")


class AnalysisRunner(Protocol):
    """Runs functions in other processes."""

    async def run(self, function: Callable[..., object], *args: object) -> Any: ...


current_client: ContextVar[str] = ContextVar("analysis_client", default="")
"""The organisation of the current request. A client uses one process of a pool at a time."""

CACHED_CHARACTERS = 2_000_000
"""Total length of the cached DAG texts."""

_pools: list[tuple[asyncio.AbstractEventLoop, AnalysisRunner]] = []
"""Pools with the event loop that each one serves."""

_loaded: dict[str, Dag] = {}


@contextmanager
def use_pool(pool: AnalysisRunner) -> Generator[None]:
    """Run analyses of the current event loop in this pool until the block ends."""
    entry = asyncio.get_running_loop(), pool
    _pools.append(entry)
    try:
        yield
    finally:
        _pools.remove(entry)


async def run_analysis(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a module-level function in the pool, if one is set; arguments and result must be picklable."""
    loop = asyncio.get_running_loop()
    pool = next((pool for owner, pool in reversed(_pools) if owner is loop), None)
    if pool is None:
        return function(*args, **kwargs)
    return await pool.run(function, *args, **kwargs)


async def load_dag(text: str, file: str = "dag.yaml") -> Dag:
    """Parse a DAG; raises DagError with all its errors. Recently loaded DAGs are cached."""
    dag = _loaded.pop(text, None) or await run_analysis(load.load_dag, text, file)
    _loaded[text] = dag
    while sum(map(len, _loaded)) > CACHED_CHARACTERS:
        del _loaded[next(iter(_loaded))]
    return dag


async def locate_findings(text: str, findings: Iterable[Finding]) -> list[DagProblem]:
    """Add file positions to findings about the text of a DAG."""
    return await run_analysis(load.locate_findings, text, list(findings))


async def find_datasets_read(text: str) -> frozenset[str]:
    """Return the names of the datasets that a query reads."""
    return await run_analysis(select_parser.find_datasets_read, text)


async def prepare_query(
    text: str, tables: Mapping[str, PhysicalTable], limits: QueryLimits | None = None
) -> PreparedQuery:
    """Return the query to run; raises QueryRefusedError if it is not allowed or names an unknown table."""
    return await run_analysis(table_rewrite.prepare_query, text, dict(tables), limits)
