"""Methods of a submitted Job: refresh, wait, result, logs and cancel."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date

import pandas as pd
import pytest

from aaiclick.data import Object, create_object_from_value, sync
from aaiclick.errors import JobFailedError, SubmitError
from aaiclick.orchestration import get_job, job, run_job_test, task
from aaiclick.orchestration import sync as sync_jobs


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
    with pytest.raises(TimeoutError, match=r"one_order. is PENDING after 0.1 s.*no worker serves queue 'default'"):
        await handle.result(timeout_seconds=0.1)
    copy = await get_job(handle.id)
    running = asyncio.create_task(asyncio.to_thread(run_job_test, copy))
    assert await handle.result(timeout_seconds=60) == Order(7, date(2026, 1, 2))
    assert handle.status == "COMPLETED"
    assert (await handle.result(dict))["number"] == 7
    assert "looking for 7" in await handle.logs()
    assert not await handle.cancel()
    await running


async def test_missing_worker_is_logged(aaiclick_env, monkeypatch):
    warned = asyncio.Event()
    messages: list[str] = []

    def record(message: str, *values: object) -> None:
        messages.append(message % values)
        warned.set()

    monkeypatch.setattr("aaiclick.orchestration.job_handle.WARN_SECONDS", 0)
    monkeypatch.setattr("aaiclick.orchestration.job_handle.LOGGER.warning", record)
    waiting = asyncio.create_task((await one_order(7)).wait())
    await warned.wait()
    waiting.cancel()
    assert "(one_order) is PENDING." in messages[0]
    assert "start one with 'aaiclick worker start'" in messages[0]


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


def test_submit_of_a_function_instead_of_its_call_is_refused():
    with pytest.raises(SubmitError, match="two_orders is not the call of a @job function") as refusal:
        sync_jobs.submit(two_orders)
    assert refusal.value.remedy == "Write submit(two_orders(…))."
