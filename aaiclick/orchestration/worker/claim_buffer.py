"""Buffer of claimed tasks that have not started, in the order in which they start."""

from __future__ import annotations

import heapq
import itertools

from aaiclick.store.engine.leases_and_outcomes import Claim, Lease


class ClaimBuffer:
    """Priority queue: by priority, then by arrival. An urgent claim may arrive in a later exchange."""

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
        """Whether a claim has been waiting since before `before`."""
        return any(since < before for _, _, since, _ in self._heap)

    def clear(self) -> None:
        self._heap.clear()
