"""Claims that a worker process holds and has not begun, in the order in which they are to begin."""

from __future__ import annotations

import heapq
import itertools

from aaiclick.store.leases import Claim, Lease


class ClaimBuffer:
    """By priority, then by arrival: claims of several exchanges meet here, and an urgent one may come last."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, float, Claim]] = []
        self._sequence = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, claim: Claim, now: float) -> None:
        heapq.heappush(self._heap, (-claim.priority, next(self._sequence), now, claim))

    def pop(self) -> Claim:
        return heapq.heappop(self._heap)[3]

    def leases(self) -> list[Lease]:
        return [claim.lease for _, _, _, claim in self._heap]

    def is_stale(self, before: float) -> bool:
        """Whether a claim has been waiting since before that time."""
        return any(since < before for _, _, since, _ in self._heap)

    def clear(self) -> None:
        self._heap.clear()
