"""What happens when: all of it from the seed, so that a run can be had again."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

INTERVALS = {
    "worker": 5.0,
    "zombie": 20.0,
    "postgres": 60.0,
    "clickhouse": 60.0,
    "network": 4.0,
    "leader": 30.0,
    "server": 30.0,
    "clock": 30.0,
    "disk": 30.0,
}
"""Kind of fault → seconds between two of them, on average."""


@dataclass(frozen=True, order=True)
class Strike:
    """One fault; `dice` decides whom it hits and how."""

    at_seconds: float
    kind: str
    dice: int

    def rng(self) -> random.Random:
        return random.Random(self.dice)  # noqa: S311


def schedule(seed: int, seconds: float, kinds: Collection[str]) -> list[Strike]:
    """All faults of a run, in order; every kind comes in the first half at least once."""
    strikes: list[Strike] = []
    for kind in sorted(kinds):
        rng = random.Random(f"{seed}/{kind}")  # noqa: S311
        at = rng.uniform(0.3, 1.0) * min(INTERVALS[kind], seconds / 2)
        while at < seconds:
            strikes.append(Strike(at, kind, rng.getrandbits(32)))
            at += INTERVALS[kind] * rng.uniform(0.75, 1.25)
    return sorted(strikes)
