"""State of a follower: the next range to fetch, from its cursor and the tip of the source.

Some sources rewrite their latest history, for example blockchains. The marks (hash, etag) of some positions are stored;
when the source returns another mark for a position, everything after the newest matching mark is fetched again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aaiclick.catalog.operators.integer_ranges import Range


@dataclass(frozen=True, slots=True)
class FollowerState:
    """`cursor`: the next position to fetch. `marks`: positions and their marks, newest last."""

    cursor: int
    marks: tuple[tuple[int, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "marks": [list(entry) for entry in self.marks]}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None, start: int) -> FollowerState:
        if not data:
            return cls(start)
        return cls(int(data["cursor"]), tuple((int(position), str(mark)) for position, mark in data["marks"]))


def next_range(state: FollowerState, tip: int, confirmations: int, batch_size: int) -> Range | None:
    """Return the range to fetch now; None if there is nothing. The last `confirmations` positions are left out."""
    last = tip - confirmations
    if state.cursor > last:
        return None
    return Range(state.cursor, min(last, state.cursor + batch_size - 1))


def advance_state(state: FollowerState, fetched: Range, mark: str | None, keep: int) -> FollowerState:
    """Return the state after a range was fetched and stored."""
    if fetched.start != state.cursor:
        raise ValueError(f"fetched from {fetched.start}, but {state.cursor} is next")
    marks = state.marks if mark is None or keep == 0 else (*state.marks, (fetched.end, mark))[-keep:]
    return replace(state, cursor=fetched.end + 1, marks=marks)


def rewind_state(state: FollowerState, current: Mapping[int, str], start: int) -> tuple[FollowerState, Range | None]:
    """Return the state after comparing marks with the source, and the range that was rewritten.

    `current` has the source's current mark of each stored position (a missing one was removed). If none matches,
    everything is fetched again from the start.
    """
    agreed = len(state.marks)
    while agreed and current.get(state.marks[agreed - 1][0]) != state.marks[agreed - 1][1]:
        agreed -= 1
    if agreed == len(state.marks):
        return state, None
    cursor = state.marks[agreed - 1][0] + 1 if agreed else start
    rewritten = Range(cursor, state.cursor - 1) if cursor < state.cursor else None
    return FollowerState(cursor, state.marks[:agreed]), rewritten
