"""Queries over datasets at once are limited, of one organisation and in all."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from aaiclick.server.problems import BusyError, TooManyRequestsError
from aaiclick.server.query_slots import ALL_QUERIES, CLIENT_QUERIES, QuerySlots


async def test_an_organisation_has_its_share_of_slots_and_no_more() -> None:
    slots = QuerySlots()
    async with AsyncExitStack() as stack:
        for _ in range(CLIENT_QUERIES):
            await stack.enter_async_context(slots.slot("a"))
        with pytest.raises(TooManyRequestsError):
            await stack.enter_async_context(slots.slot("a"))
        await stack.enter_async_context(slots.slot("b"))
    async with slots.slot("a"):
        pass


async def test_slots_in_all_are_limited() -> None:
    slots = QuerySlots()
    async with AsyncExitStack() as stack:
        for number in range(ALL_QUERIES):
            await stack.enter_async_context(slots.slot(f"org {number}"))
        with pytest.raises(BusyError):
            await stack.enter_async_context(slots.slot("another"))
