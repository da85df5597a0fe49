"""Ranges of positions: whole numbers, both ends included.

The state of an aggregator is where it has got to (`cursor`, the first position not passed on yet) and what has arrived
beyond that, as ranges that neither overlap nor touch. Absorbing is idempotent, and the order of arrival does not
matter: a task that runs twice, or late, changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Range:
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise ValueError(f"a range from {self.start} to {self.end} is empty")

    def __len__(self) -> int:
        return self.end - self.start + 1


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How far ranges were passed on, and what waits for its neighbours."""

    cursor: int
    pending: tuple[Range, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "pending": [[each.start, each.end] for each in self.pending]}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None, start: int) -> Aggregation:
        if not data:
            return cls(start)
        return cls(int(data["cursor"]), tuple(Range(int(first), int(last)) for first, last in data["pending"]))


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same positions as ranges that neither overlap nor touch, in order."""
    result: list[Range] = []
    for each in sorted(ranges):
        if result and each.start <= result[-1].end + 1:
            result[-1] = Range(result[-1].start, max(result[-1].end, each.end))
        else:
            result.append(each)
    return tuple(result)


def absorb(state: Aggregation, arrived: Iterable[Range]) -> Aggregation:
    """The state after ranges have arrived; what is before the cursor was passed on already."""
    new = [Range(max(each.start, state.cursor), each.end) for each in arrived if each.end >= state.cursor]
    return replace(state, pending=merged([*state.pending, *new])) if new else state


def take_whole(state: Aggregation, size: int, origin: int = 0, limit: int = 10_000) -> tuple[list[Range], Aggregation]:
    """Whole ranges of a size, counted from the origin, that are complete at the cursor; and the state without them.

    They come in order and without holes: a range that is complete beyond a hole waits. At most `limit` at once.
    """
    taken: list[Range] = []
    cursor, pending = state.cursor, state.pending
    while pending and pending[0].start <= cursor and len(taken) < limit:
        end = origin + ((cursor - origin) // size + 1) * size - 1
        if pending[0].end < end:
            break
        taken.append(Range(cursor, end))
        cursor = end + 1
        rest = () if pending[0].end == end else (Range(cursor, pending[0].end),)
        pending = (*rest, *pending[1:])
    return taken, Aggregation(cursor, pending)


def take_partial(state: Aggregation) -> tuple[list[Range], Aggregation]:
    """What is complete at the cursor although it is not whole; for the end of a run."""
    if not state.pending or state.pending[0].start > state.cursor:
        return [], state
    first = state.pending[0]
    return [Range(state.cursor, first.end)], Aggregation(first.end + 1, state.pending[1:])


def missing(state: Aggregation) -> Range | None:
    """The first hole that keeps later ranges waiting."""
    if not state.pending:
        return None
    first = state.pending[0]
    if first.start > state.cursor:
        return Range(state.cursor, first.start - 1)
    return Range(first.end + 1, state.pending[1].start - 1) if len(state.pending) > 1 else None


def split(whole: Range, size: int, origin: int = 0) -> Iterator[Range]:
    """A range in pieces of at most a size, cut at multiples of it counted from the origin."""
    start = whole.start
    while start <= whole.end:
        end = origin + ((start - origin) // size + 1) * size - 1
        yield Range(start, min(end, whole.end))
        start = end + 1


def covers(ranges: tuple[Range, ...], position: int) -> bool:
    """Whether merged ranges hold a position."""
    index = bisect_left(ranges, position, key=lambda each: each.end)
    return index < len(ranges) and ranges[index].start <= position
