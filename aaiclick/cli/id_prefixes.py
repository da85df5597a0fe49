"""Ids by their first digits, if only one item has such an id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Protocol

from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.client.requests import encode_cursor
from aaiclick.errors import RequestError

MIN_DIGITS, MAX_DIGITS = 18, 19
"""Digits of ids, which contain the time in milliseconds since 2024, times 2²²."""
MAX_SHOWN = 5


class Identified(Protocol):
    @property
    def id(self) -> int: ...


Listing = Callable[[SyncEndpoints, int], Iterator[Identified]]

LISTINGS: Mapping[str, Listing] = {
    "jobs": lambda operations, end: operations.list_jobs(cursor=encode_cursor(end), limit=MAX_SHOWN + 1),
    "tasks": lambda operations, end: operations.list_tasks(cursor=encode_cursor(end), limit=MAX_SHOWN + 1),
    "workers": lambda operations, end: _list_workers(operations, end),
    "incidents": lambda operations, end: operations.list_incidents(
        closed=True, cursor=encode_cursor(end), limit=MAX_SHOWN + 1
    ),
    "approvals": lambda operations, end: operations.list_approvals(
        everything=True, cursor=encode_cursor(end), limit=MAX_SHOWN + 1
    ),
    "events": lambda operations, end: operations.list_outbox_events(cursor=encode_cursor(end), limit=MAX_SHOWN + 1),
}
"""Items with ids below a limit, newest first."""


def find_id(operations: SyncEndpoints, listing_names: Sequence[str], prefix: int) -> int:
    """The only id of some listings with these first digits, or the digits if none has; RequestError if several have."""
    matches: list[int] = []
    for digits in range(MIN_DIGITS, MAX_DIGITS + 1):
        zeros = digits - len(str(prefix))
        if zeros < 1:
            continue
        first, end = prefix * 10**zeros, (prefix + 1) * 10**zeros
        for name in listing_names:
            items = LISTINGS[name](operations, min(end, 2**63 - 1))
            matches += [item.id for item in islice(takewhile(lambda item: item.id >= first, items), MAX_SHOWN + 1)]  # noqa: B023
    if len(matches) > 1:
        shown = ", ".join(map(str, matches[:MAX_SHOWN])) + (", …" if len(matches) > MAX_SHOWN else "")
        names = " and ".join(listing_names)
        raise RequestError(f"Several {names} have ids that begin with {prefix}: {shown}.", remedy="Add digits.")
    return matches[0] if matches else prefix


def _list_workers(operations: SyncEndpoints, end: int) -> Iterator[Identified]:
    return iter(sorted((worker for worker in operations.list_workers() if worker.id < end), key=lambda w: -w.id))
