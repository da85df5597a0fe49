"""What a run comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from aaiclick.chaos.recoveries import Recovery
from aaiclick.chaos.servers import LEASE_SECONDS

FAULTS = (
    "lost", "unexpected", "duplicated", "accepted twice", "disordered", "orphans", "outbox left", "violated",
)  # fmt: skip


MOST_RECOVERY_SECONDS = LEASE_SECONDS + 5.0


@dataclass
class Verdict:
    """What was found; everything but the figures should be empty."""

    lost: list[str] = field(default_factory=list[str])
    unexpected: list[str] = field(default_factory=list[str])
    duplicated: list[str] = field(default_factory=list[str])
    accepted_twice: list[str] = field(default_factory=list[str])
    disordered: list[str] = field(default_factory=list[str])
    orphans: list[str] = field(default_factory=list[str])
    outbox_left: list[str] = field(default_factory=list[str])
    violated: list[str] = field(default_factory=list[str])
    recovered: int = 0
    tasks: int = 0
    jobs: int = 0
    recoveries: list[Recovery] = field(default_factory=list[Recovery])
    """Tasks of killed processes that began again, the quickest first."""
    slow: list[str] = field(default_factory=list[str])
    """Where the time of those that took too long went."""
    struck_again: int = 0
    """Those of a killed process whose next attempt was struck, too, before it began."""
    ends: list[float] = field(default_factory=list[float])
    """When attempts came to their end, by the clock of the histories."""

    @property
    def faults(self) -> dict[str, list[str]]:
        return {name: getattr(self, name.replace(" ", "_")) for name in FAULTS}

    @property
    def clean(self) -> bool:
        return not any(self.faults.values())
