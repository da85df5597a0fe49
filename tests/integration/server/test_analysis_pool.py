"""Analysis pool: limits of time, memory and number of calls, and isolation of clients."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator

import pytest

from aaiclick.catalog import sql_yaml_analysis
from aaiclick.catalog.errors import DagError, QueryRefusedError
from aaiclick.catalog.queries.table_rewrite import PhysicalTable
from aaiclick.catalog.sql_yaml_analysis import current_client
from aaiclick.server.analysis_pool import MAX_CLIENT_WAITING, AnalysisLimitError, AnalysisPool
from aaiclick.server.problem_responses import TooManyRequestsError

ENDLESS = (r"(a+)+$", "a" * 60 + "b")


@pytest.fixture
async def pool() -> AsyncIterator[AnalysisPool]:
    pool = AnalysisPool(cpu_seconds=0.5)
    with sql_yaml_analysis.use_pool(pool):
        yield pool
    await pool.close()


async def test_results_and_errors_come_from_another_process(pool: AnalysisPool) -> None:
    assert await pool.run(os.getpid) != os.getpid()
    assert await sql_yaml_analysis.run_analysis(os.getpid) != os.getpid()
    assert await sql_yaml_analysis.find_datasets_read("SELECT a FROM d") == {"d"}
    prepared = await sql_yaml_analysis.prepare_query("SELECT a FROM d", {"d": PhysicalTable("t1", ("a",))})
    assert "`t1`" in prepared.text
    with pytest.raises(QueryRefusedError, match="not a SELECT"):
        await sql_yaml_analysis.find_datasets_read("DROP TABLE d")
    with pytest.raises(DagError) as refused:
        await sql_yaml_analysis.load_dag("a: [", "mine.yaml")
    assert refused.value.file == "mine.yaml"


async def test_endless_call_is_killed_and_the_next_one_succeeds(pool: AnalysisPool) -> None:
    with pytest.raises(AnalysisLimitError):
        await pool.run(re.search, *ENDLESS)
    assert await sql_yaml_analysis.find_datasets_read("SELECT a FROM d") == {"d"}


async def test_call_over_the_memory_limit_fails(pool: AnalysisPool) -> None:
    with pytest.raises(AnalysisLimitError):
        await pool.run(eval, "len(bytes(4 << 30))")  # without the limit it returns at once
    assert await sql_yaml_analysis.find_datasets_read("SELECT a FROM d") == {"d"}


async def test_exited_process_is_replaced(pool: AnalysisPool) -> None:
    with pytest.raises(AnalysisLimitError):
        await pool.run(os._exit, 1)
    first = await pool.run(os.getpid)
    os.kill(first, 9)
    assert await pool.run(os.getpid) != first


async def test_calls_per_client_are_limited(pool: AnalysisPool) -> None:
    results = await asyncio.gather(
        *(pool.run(re.search, *ENDLESS) for _ in range(MAX_CLIENT_WAITING + 3)), return_exceptions=True
    )
    assert sum(isinstance(result, TooManyRequestsError) for result in results) == 3
    assert sum(isinstance(result, AnalysisLimitError) for result in results) == MAX_CLIENT_WAITING


async def test_one_client_cannot_use_all_processes(pool: AnalysisPool) -> None:
    """A second client gets its response before the queued calls of the first."""

    async def attack() -> None:
        current_client.set("attacker")
        with pytest.raises(AnalysisLimitError):
            await pool.run(re.search, *ENDLESS)

    async def ask(client: str = "other") -> None:
        current_client.set(client)
        assert await sql_yaml_analysis.find_datasets_read("SELECT a FROM d") == {"d"}

    await asyncio.gather(ask("first"), ask("second"))  # both processes are warm
    attacks = [asyncio.create_task(attack()) for _ in range(MAX_CLIENT_WAITING)]
    await asyncio.sleep(0)
    await asyncio.create_task(ask())
    assert sum(call.done() for call in attacks) <= 1  # a single queue would finish three of them first
    await asyncio.gather(*attacks)


async def test_cancelled_call_kills_its_process(pool: AnalysisPool) -> None:
    await pool.warm_up()
    call = asyncio.create_task(pool.run(re.search, *ENDLESS))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await sql_yaml_analysis.find_datasets_read("SELECT a FROM d") == {"d"}
