"""How often open pages may ask for news: all of them together take a small share of one processor.

One page is brought up to date every second. Fifty of them, of 8 ms each, would take two fifths of a processor from the
work that they show: they are told to wait longer.
"""

from __future__ import annotations

SHARE = 0.02
SOONEST_SECONDS = 1.0
LATEST_SECONDS = 60.0
WEIGHT = 0.1


class Pace:
    """Counts who listens and what a page costs."""

    def __init__(self) -> None:
        self.listeners = 0
        self._page_seconds = 0.01

    def took(self, seconds: float) -> None:
        self._page_seconds += WEIGHT * (seconds - self._page_seconds)

    @property
    def seconds(self) -> float:
        """How long a page waits between two refreshes."""
        return min(LATEST_SECONDS, max(SOONEST_SECONDS, self.listeners * self._page_seconds / SHARE))
