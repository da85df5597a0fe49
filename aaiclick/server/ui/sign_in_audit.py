"""Audit entries of sign-ins and refused sign-ins, rate-limited per actor so that the audit log cannot be flooded.

The next entry carries the number of suppressed ones. All refused sign-ins share one actor and are written to the
default organisation, since their organisation is unknown; credentials are never written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy.audit import write_audit

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_ENTRIES = 10
WINDOW_SECONDS = 60.0
UNKNOWN_ACTOR = "nobody"
TARGET = "web UI"


@dataclass
class _RateWindow:
    ends_at: float
    entries: int = 0
    suppressed: int = 0


@dataclass
class SignInAudit:
    """Rate-limited writer of sign-in entries; one per server process."""

    clock: Callable[[], float] = time.monotonic
    _windows: dict[str, _RateWindow] = field(default_factory=dict[str, _RateWindow])

    async def write_entry(
        self, connection: Connection, action: str, method: str, request_id: str | None,
        *, actor: str = UNKNOWN_ACTOR, org_id: UUID = DEFAULT_ORG_ID,
    ) -> None:  # fmt: skip
        """Write an audit entry unless the actor's limit is reached."""
        suppressed = self.count_entry(actor)
        if suppressed is not None:
            detail = {"by": method} | ({"left_out": suppressed} if suppressed else {})
            await write_audit(
                connection,
                org_id=org_id,
                actor=actor,
                action=action,
                target=TARGET,
                request_id=request_id,
                detail=detail,
            )

    def count_entry(self, actor: str) -> int | None:
        """Count an entry; return the number suppressed before it, or None if this one is suppressed."""
        now = self.clock()
        window = self._windows.get(actor)
        if window is None or window.ends_at <= now:
            suppressed = 0 if window is None else window.suppressed
            self._windows = {
                name: other for name, other in self._windows.items() if other.ends_at > now or other.suppressed
            }
            self._windows[actor] = _RateWindow(now + WINDOW_SECONDS, entries=1)
            return suppressed
        if window.entries >= MAX_ENTRIES:
            window.suppressed += 1
            return None
        window.entries += 1
        return 0
