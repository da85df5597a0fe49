"""Ranges of integer positions, both ends included.

The state of an aggregator is its `cursor` (the first position that was not emitted yet) and the pending ranges beyond
it, which neither overlap nor touch. Absorbing is idempotent and independent of the order: a task that runs twice, or
late, changes nothing.
"""

from __future__ import annotations

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
    """The first position that was not emitted, and the pending ranges beyond it."""

    cursor: int
    pending: tuple[Range, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "pending": [[range_.start, range_.end] for range_ in self.pending]}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None, start: int) -> Aggregation:
        if not data:
            return cls(start)
        return cls(int(data["cursor"]), tuple(Range(int(first), int(last)) for first, last in data["pending"]))


def merge_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the same positions as sorted ranges that neither overlap nor touch."""
    result: list[Range] = []
    for range_ in sorted(ranges):
        if result and range_.start <= result[-1].end + 1:
            result[-1] = Range(result[-1].start, max(result[-1].end, range_.end))
        else:
            result.append(range_)
    return tuple(result)


def absorb_ranges(state: Aggregation, arrived: Iterable[Range]) -> Aggregation:
    """Return the state after ranges have arrived; positions before the cursor were already emitted."""
    clipped = [Range(max(range_.start, state.cursor), range_.end) for range_ in arrived if range_.end >= state.cursor]
    return replace(state, pending=merge_ranges([*state.pending, *clipped])) if clipped else state


def take_whole(state: Aggregation, size: int, origin: int = 0, limit: int = 10_000) -> tuple[list[Range], Aggregation]:
    """Return the complete ranges of a size at the cursor, aligned to the origin, and the remaining state.

    They come in order and without gaps: a complete range beyond a gap waits. At most `limit` at once.
    """
    ranges: list[Range] = []
    cursor, pending = state.cursor, state.pending
    while pending and pending[0].start <= cursor and len(ranges) < limit:
        end = origin + ((cursor - origin) // size + 1) * size - 1
        if pending[0].end < end:
            break
        ranges.append(Range(cursor, end))
        cursor = end + 1
        rest = () if pending[0].end == end else (Range(cursor, pending[0].end),)
        pending = (*rest, *pending[1:])
    return ranges, Aggregation(cursor, pending)


def take_partial(state: Aggregation) -> tuple[list[Range], Aggregation]:
    """Return the incomplete range at the cursor, for the end of a run."""
    if not state.pending or state.pending[0].start > state.cursor:
        return [], state
    first = state.pending[0]
    return [Range(state.cursor, first.end)], Aggregation(first.end + 1, state.pending[1:])


def split_range(whole: Range, size: int, origin: int = 0) -> Iterator[Range]:
    """Split a range into pieces of at most a size, aligned to the origin."""
    start = whole.start
    while start <= whole.end:
        end = origin + ((start - origin) // size + 1) * size - 1
        yield Range(start, min(end, whole.end))
        start = end + 1
