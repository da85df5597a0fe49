"""Outages of the worker's own servers: an attempt that ends because of one is released, not charged.

In an outage PostgreSQL, ClickHouse or the aaiclick server is unreachable, overloaded, or refuses the worker's
credential or database. Such errors carry the server's `address` (see `AaiclickError`); errors of services that the
task's code uses itself do not.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import cast

from aaiclick.errors import AaiclickError

RELEASE_SECONDS = 1.0
"""Delay before the next attempt; the store doubles it with each release in a row (see `leases.MAX_RELEASES`)."""

PUBLISH_SECONDS = 60.0
PUBLISH_PAUSE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
DEADLINE_MARGIN_SECONDS = 2.0


def find_outage(
    error: BaseException | None, addresses: Collection[str], visited: set[int] | None = None
) -> AaiclickError | None:
    """The outage that an exception reports, itself or as its cause; of a group, if all its exceptions do."""
    visited = set() if visited is None else visited
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            members = cast("tuple[BaseException, ...]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
            outages = [find_outage(member, addresses, visited) for member in members]
            return outages[0] if all(member is not None for member in outages) else None
        if isinstance(error, AaiclickError) and error.address in addresses:
            return error
        error = error.__cause__
    return None


def publish_pauses(began: float | None, deadline: float) -> Iterator[float]:
    """Pauses between tries to publish a result during an outage.

    They end when running the task again costs less than waiting any longer: after as long as it has run, but not before
    PUBLISH_SECONDS, nor after the task's deadline. All times are of the monotonic clock.
    """
    now = time.monotonic()
    until = min(now + max(PUBLISH_SECONDS, now - (began or now)), deadline - DEADLINE_MARGIN_SECONDS)
    tries = 0
    while True:
        pause = PUBLISH_PAUSE_SECONDS[min(tries, len(PUBLISH_PAUSE_SECONDS) - 1)]
        if time.monotonic() + pause > until:
            return
        yield pause
        tries += 1
