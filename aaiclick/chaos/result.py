"""The result of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from aaiclick.chaos.recovery_times import Recovery
from aaiclick.chaos.servers import LEASE_SECONDS

FINDING_KINDS = (
    "lost", "unexpected", "duplicated", "accepted twice", "disordered", "orphans", "outbox left", "violated",
)  # fmt: skip


MAX_RECOVERY_SECONDS = LEASE_SECONDS + 5.0


@dataclass
class CheckResult:
    """Findings of the checks; all lists up to `violated` should be empty."""

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
    incidents: int = 0
    messages: int = 0
    """Messages about incidents that the receivers have accepted."""
    recoveries: list[Recovery] = field(default_factory=list[Recovery])
    """Tasks of killed processes that began again, fastest first."""
    slow: list[str] = field(default_factory=list[str])
    """Time line of each recovery that took too long."""
    faulted_again: int = 0
    """Tasks of a killed process with another fault before the next attempt began."""
    ends: list[float] = field(default_factory=list[float])
    """End times of attempts, by the clock of the histories."""

    @property
    def findings_by_kind(self) -> dict[str, list[str]]:
        return {name: getattr(self, name.replace(" ", "_")) for name in FINDING_KINDS}

    @property
    def is_clean(self) -> bool:
        return not any(self.findings_by_kind.values())
