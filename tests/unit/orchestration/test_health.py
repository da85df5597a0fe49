"""Time limits of health checks."""

import asyncio

import pytest

from aaiclick.orchestration.health import run_with_timeout


async def test_check_that_ignores_cancellation_is_abandoned() -> None:
    server_resumes = asyncio.Event()
    ended = asyncio.Event()

    async def query() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await server_resumes.wait()
            ended.set()

    with pytest.raises(TimeoutError):
        await run_with_timeout(0.01, query())
    assert not ended.is_set()
    server_resumes.set()
    await ended.wait()


async def test_result_and_error_in_time_are_returned() -> None:
    async def fail() -> None:
        raise OSError("refused")

    assert await run_with_timeout(60, asyncio.sleep(0, "done")) == "done"
    with pytest.raises(OSError, match="refused"):
        await run_with_timeout(60, fail())
