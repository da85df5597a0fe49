"""Limits of concurrent queries, per organisation and in total."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from aaiclick.server.problem_responses import BusyError, TooManyRequestsError
from aaiclick.server.query_limits import MAX_ORG_QUERIES, MAX_QUERIES, QueryLimiter


async def test_concurrent_queries_of_an_org_are_limited() -> None:
    limiter = QueryLimiter()
    async with AsyncExitStack() as stack:
        for _ in range(MAX_ORG_QUERIES):
            await stack.enter_async_context(limiter.acquire_slot("a"))
        with pytest.raises(TooManyRequestsError):
            await stack.enter_async_context(limiter.acquire_slot("a"))
        await stack.enter_async_context(limiter.acquire_slot("b"))
    async with limiter.acquire_slot("a"):
        pass


async def test_concurrent_queries_in_total_are_limited() -> None:
    limiter = QueryLimiter()
    async with AsyncExitStack() as stack:
        for number in range(MAX_QUERIES):
            await stack.enter_async_context(limiter.acquire_slot(f"org {number}"))
        with pytest.raises(BusyError):
            await stack.enter_async_context(limiter.acquire_slot("another"))
