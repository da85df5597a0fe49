"""Who signed in, and who was refused, in the audit log: bounded, so that nobody can fill it.

Each guest gets a few entries a minute; those that were left out are counted in the next one. Everybody who was refused
is the same guest, and is entered in the operator's organisation: whose it would have been is not known. Nothing of what
was sent is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.audit import write_audit
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

MOST = 10
WINDOW_SECONDS = 60.0
REFUSED = "nobody"
PAGES = "web UI"


@dataclass
class _Window:
    until: float
    entries: int = 0
    left_out: int = 0


@dataclass
class Guestbook:
    """Of one server process."""

    clock: Callable[[], float] = time.monotonic
    _windows: dict[str, _Window] = field(default_factory=dict[str, _Window])

    async def enter(
        self, connection: Connection, action: str, by: str, request_id: str | None,
        *, actor: str = REFUSED, org_id: UUID = DEFAULT_ORG_ID,
    ) -> None:  # fmt: skip
        """Write that somebody came, unless that one has filled its lines."""
        left_out = self.admit(actor)
        if left_out is not None:
            detail = {"by": by} | ({"left_out": left_out} if left_out else {})
            await write_audit(
                connection,
                org_id=org_id,
                actor=actor,
                action=action,
                target=PAGES,
                request_id=request_id,
                detail=detail,
            )

    def admit(self, actor: str) -> int | None:
        """How many entries were left out since the last one; None if this is one more."""
        now = self.clock()
        window = self._windows.get(actor)
        if window is None or window.until <= now:
            left_out = 0 if window is None else window.left_out
            self._windows = {name: each for name, each in self._windows.items() if each.until > now or each.left_out}
            self._windows[actor] = _Window(now + WINDOW_SECONDS, entries=1)
            return left_out
        if window.entries >= MOST:
            window.left_out += 1
            return None
        window.entries += 1
        return 0
