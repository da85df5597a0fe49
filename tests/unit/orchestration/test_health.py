"""Time limits of health checks."""

import asyncio

import pytest

from aaiclick.orchestration.health import answer_within


async def test_a_check_that_does_not_end_when_cancelled_is_left_behind() -> None:
    server_resumes = asyncio.Event()
    ended = asyncio.Event()

    async def query() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await server_resumes.wait()
            ended.set()

    with pytest.raises(TimeoutError):
        await answer_within(0.01, query())
    assert not ended.is_set()
    server_resumes.set()
    await ended.wait()


async def test_a_result_and_an_error_in_time_are_passed_on() -> None:
    async def fail() -> None:
        raise OSError("refused")

    assert await answer_within(60, asyncio.sleep(0, "done")) == "done"
    with pytest.raises(OSError, match="refused"):
        await answer_within(60, fail())
