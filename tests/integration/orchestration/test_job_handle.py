"""Methods of a submitted Job: refresh, wait, result, logs and cancel."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date

import pandas as pd
import pytest

from aaiclick.data import Object, create_object_from_value, sync
from aaiclick.errors import JobFailedError
from aaiclick.orchestration import get_job, job, run_job_test, task


@dataclass
class Order:
    number: int
    day: date


@task
def find_order(number: int) -> Order:
    print("looking for", number)
    return Order(number, date(2026, 1, 2))


@task
async def make_table() -> Object:
    return await create_object_from_value({"a": [1, 2]})


@task(retries=0)
def fail() -> None:
    raise ValueError("no such order")


@job
def one_order(number: int) -> None:
    find_order(number)


@job
def two_orders() -> None:
    find_order(1)
    find_order(2)


@job
def one_table() -> None:
    make_table()


@job
def broken() -> None:
    fail()


async def test_result_waits_for_the_job(aaiclick_env):
    handle = await one_order(7)
    with pytest.raises(TimeoutError):
        await handle.result(timeout_seconds=0.1)
    copy = await get_job(handle.id)
    running = asyncio.create_task(asyncio.to_thread(run_job_test, copy))
    assert await handle.result(timeout_seconds=60) == Order(7, date(2026, 1, 2))
    assert handle.status == "COMPLETED"
    assert (await handle.result(dict))["number"] == 7
    assert "looking for 7" in await handle.logs()
    assert not await handle.cancel()
    await running


async def test_several_results_are_a_list(aaiclick_env):
    handle = run_job_test(await two_orders())
    assert await handle.result(Order) == [Order(number, date(2026, 1, 2)) for number in (1, 2)]


async def test_result_is_read_in_the_form_of_the_annotation(aaiclick_env):
    handle = run_job_test(await one_table())
    assert await handle.result() == {"a": [1, 2]}
    assert await handle.result(list[dict]) == [{"a": 1}, {"a": 2}]
    assert (await handle.result(pd.DataFrame))["a"].tolist() == [1, 2]


async def test_result_of_a_failed_job_raises(aaiclick_env):
    handle = run_job_test(await broken())
    with pytest.raises(JobFailedError, match=r"is FAILED: .*ValueError: no such order"):
        await handle.result()


async def test_cancelled_job_has_no_result(aaiclick_env):
    handle = await one_order(7)
    assert await handle.cancel()
    assert handle.status == "CANCELLED"
    with pytest.raises(JobFailedError, match="is CANCELLED"):
        await handle.result()


def test_synchronous_code_runs_jobs(aaiclick_env):
    handle = sync.run(one_order(7))
    run_job_test(handle)
    assert sync.run(handle.result(Order)) == Order(7, date(2026, 1, 2))
