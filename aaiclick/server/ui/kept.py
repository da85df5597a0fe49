"""Answers that several pages want, kept for a moment: the dearer one was, the longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

SHARE = 20
"""What takes 50 ms is asked for once a second at most."""

MOST = 500


@dataclass
class _Answer:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Any = None
    good_until: float = float("-inf")


class Kept:
    """Asks once for all who want to know the same at the same time."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, _Answer] = {}

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
            return answer.value

    def _forget(self) -> None:
        if len(self._answers) >= MOST:
            now = time.monotonic()
            kept = {key: answer for key, answer in self._answers.items() if answer.good_until > now}
            self._answers = kept if len(kept) < MOST else {}
