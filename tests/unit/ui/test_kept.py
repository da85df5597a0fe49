"""Answers kept for a moment, and those that are not waited for."""

from __future__ import annotations

import asyncio

import pytest

from aaiclick.server.ui.kept import Kept, seconds_to_news


async def test_what_takes_long_is_not_waited_for_and_is_there_later() -> None:
    kept, gate, asked = Kept(), asyncio.Event(), []

    async def ask() -> int:
        asked.append(1)
        await gate.wait()
        return 7

    assert await kept.soon("key", ask, within=0) is None
    assert await kept.soon("key", ask, within=0) is None
    assert len(asked) == 1  # everybody waits for the same answer
    gate.set()
    assert await kept.soon("key", ask, within=10) == 7
    assert len(asked) == 1
    assert await kept.soon("key", ask, within=10) == 7  # kept for a moment
    assert len(asked) == 1


async def test_an_answer_from_before_is_given_while_a_new_one_is_made() -> None:
    kept, gate = Kept(), asyncio.Event()

    async def first() -> int:
        return 1

    async def second() -> int:
        await gate.wait()
        return 2

    assert await kept.soon("key", first, within=10) == 1
    kept._answers["key"].good_until = 0.0
    assert await kept.soon("key", second, within=0) == 1
    gate.set()
    assert await kept.soon("key", second, within=10) == 2


async def test_who_waits_gets_the_error_and_who_went_on_does_not() -> None:
    kept, gate = Kept(), asyncio.Event()

    async def ask() -> int:
        await gate.wait()
        raise LookupError("gone")

    assert await kept.soon("key", ask, within=0) is None
    gate.set()
    with pytest.raises(LookupError):
        await kept.soon("key", ask, within=10)


async def test_who_is_told_something_from_before_knows_when_to_ask_again_and_who_changed_something_sees_it() -> None:
    kept, answers = Kept(), iter(range(10))

    async def ask() -> int:
        return next(answers)

    async def told() -> tuple[int, bool]:
        return await kept.get("key", ask, seconds=60), seconds_to_news() > 0

    assert [await asyncio.create_task(told()) for _ in range(2)] == [(0, False), (0, True)]
    kept.clear()
    assert await asyncio.create_task(told()) == (1, False)
