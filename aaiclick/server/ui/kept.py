"""Answers that several pages want, kept for a moment: the dearer one was, the longer.

What takes long is not waited for: the page says what it knows, and shows the rest when it is asked for again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

SHARE = 20
"""What takes 50 ms is asked for once a second at most."""

MOST = 500

_served_until: ContextVar[float] = ContextVar("served_until", default=float("-inf"))


def seconds_to_news() -> float:
    """How long until all that this request was told could be told anew; 0 if it was asked for just now."""
    return max(0.0, _served_until.get() - time.monotonic())


@dataclass
class _Answer:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Any = None
    good_until: float = float("-inf")


class Kept:
    """Asks once for all who want to know the same at the same time."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, _Answer] = {}
        self._asked: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]], *, seconds: float = 0.5) -> T:
        """What `ask` answers, or has answered within the last `seconds` (or twenty times as long as it took)."""
        answer = self._answers.get(key)
        if answer is None:
            self._forget()
            answer = self._answers[key] = _Answer()
        async with answer.lock:
            if time.monotonic() > answer.good_until:
                started = time.monotonic()
                answer.value = await ask()
                answer.good_until = time.monotonic() + max(seconds, SHARE * (time.monotonic() - started))
            else:
                _served_until.set(max(_served_until.get(), answer.good_until))
            return answer.value

    def clear(self) -> None:
        """Somebody changed something, and wants to see it."""
        self._answers = {}

    async def soon(self, key: Hashable, ask: Callable[[], Awaitable[T]], *, within: float) -> T | None:
        """The same, if it is there in time; else what was answered before, or None, and the asking goes on."""
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.ensure_future(self.get(key, ask))
            asked.add_done_callback(lambda done: self._done(key, done))
        await asyncio.wait({asked}, timeout=within)
        if asked.done():
            return asked.result()
        before = self._answers.get(key)
        return None if before is None else before.value

    def _done(self, key: Hashable, asked: asyncio.Future[Any]) -> None:
        self._asked.pop(key, None)
        if not asked.cancelled():
            asked.exception()  # whoever waits gets it; who went on has asked for nothing

    def _forget(self) -> None:
        if len(self._answers) >= MOST:
            now = time.monotonic()
            kept = {key: answer for key, answer in self._answers.items() if answer.good_until > now}
            self._answers = kept if len(kept) < MOST else {}
