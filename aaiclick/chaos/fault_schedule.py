"""The schedule of faults, derived from the seed so that a run can be repeated."""

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
"""Kind of fault → average seconds between two of them."""


@dataclass(frozen=True, order=True)
class ScheduledFault:
    """One fault; `seed` decides its target and its parameters."""

    at_seconds: float
    kind: str
    seed: int

    def make_rng(self) -> random.Random:
        return random.Random(self.seed)  # noqa: S311


def make_schedule(seed: int, seconds: float, kinds: Collection[str]) -> list[ScheduledFault]:
    """Return all faults of a run in order; every kind occurs in the first half at least once."""
    faults: list[ScheduledFault] = []
    for kind in sorted(kinds):
        rng = random.Random(f"{seed}/{kind}")  # noqa: S311
        at_seconds = rng.uniform(0.3, 1.0) * min(INTERVALS[kind], seconds / 2)
        while at_seconds < seconds:
            faults.append(ScheduledFault(at_seconds, kind, rng.getrandbits(32)))
            at_seconds += INTERVALS[kind] * rng.uniform(0.75, 1.25)
    return sorted(faults)
