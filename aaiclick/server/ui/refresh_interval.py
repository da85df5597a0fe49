"""Refresh interval of open pages, which bounds their total CPU time.

One open page refreshes every second. Fifty pages of 8 ms each would use 40 % of a CPU, so the interval grows with the
number of open pages.
"""

from __future__ import annotations

CPU_SHARE = 0.02
MIN_SECONDS = 1.0
MAX_SECONDS = 60.0
SMOOTHING = 0.1


class RefreshInterval:
    """Interval computed from the number of open pages and the mean render time of a page."""

    def __init__(self) -> None:
        self.open_pages = 0
        self._page_seconds = 0.01

    def record_page_time(self, seconds: float) -> None:
        self._page_seconds += SMOOTHING * (seconds - self._page_seconds)

    @property
    def seconds(self) -> float:
        """Seconds that a page waits between two refreshes."""
        return min(MAX_SECONDS, max(MIN_SECONDS, self.open_pages * self._page_seconds / CPU_SHARE))
