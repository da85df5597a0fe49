"""Following a source that grows: the next step, from where one was and where its end is now.

Some sources rewrite their latest history (a chain of blocks does). A mark (a hash, an etag) of some positions is
kept; when the source gives another mark for a position, everything after the newest position whose mark still agrees
is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aaiclick.catalog.operators.ranges import Range


@dataclass(frozen=True, slots=True)
class FollowerState:
    """`cursor`: the next position to fetch. `marks`: positions and what the source said they were, newest last."""

    cursor: int
    marks: tuple[tuple[int, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "marks": [list(each) for each in self.marks]}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None, start: int) -> FollowerState:
        if not data:
            return cls(start)
        return cls(int(data["cursor"]), tuple((int(position), str(mark)) for position, mark in data["marks"]))


def next_range(state: FollowerState, tip: int, confirmations: int, batch_size: int) -> Range | None:
    """What to fetch now, or nothing: then wait. The last `confirmations` positions are not touched."""
    last = tip - confirmations
    if state.cursor > last:
        return None
    return Range(state.cursor, min(last, state.cursor + batch_size - 1))


def advanced(state: FollowerState, fetched: Range, mark: str | None, keep: int) -> FollowerState:
    """The state after a range was fetched and stored."""
    if fetched.start != state.cursor:
        raise ValueError(f"fetched from {fetched.start}, but {state.cursor} is next")
    marks = state.marks if mark is None or keep == 0 else (*state.marks, (fetched.end, mark))[-keep:]
    return replace(state, cursor=fetched.end + 1, marks=marks)


def rewound(state: FollowerState, current: Mapping[int, str], start: int) -> tuple[FollowerState, Range | None]:
    """The state once marks were compared with what the source says now, and what has to be taken back.

    `current` has the source's mark of each position that is kept (an absent one has gone). If none agrees, all is
    fetched again from the start.
    """
    agreed = len(state.marks)
    while agreed and current.get(state.marks[agreed - 1][0]) != state.marks[agreed - 1][1]:
        agreed -= 1
    if agreed == len(state.marks):
        return state, None
    back_to = state.marks[agreed - 1][0] + 1 if agreed else start
    undone = Range(back_to, state.cursor - 1) if back_to < state.cursor else None
    return FollowerState(back_to, state.marks[:agreed]), undone
