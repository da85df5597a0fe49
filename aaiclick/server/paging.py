"""Pages: `limit` and an opaque `cursor`, which is the key of the last row. Page 10,000 costs what page 1 costs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, Field

from aaiclick.server.problems import MalformedError

T = TypeVar("T")
Row = TypeVar("Row")

LARGEST = 1_000


class Page(BaseModel, Generic[T]):
    """Some of the things there are, and where to go on."""

    items: list[T]
    next: str | None = Field(default=None, description="The `cursor` of the next page; absent on the last one")


Limit = Annotated[int, Query(ge=1, le=LARGEST, description="How many at most")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]


def page(rows: Sequence[Row], limit: int, show: Callable[[Row], T], key: Callable[[Row], Any]) -> Page[T]:
    """The page of `rows`, which were asked for with one more than `limit`."""
    shown = rows[:limit]
    more = write_cursor(key(shown[-1])) if len(rows) > limit else None
    return Page[Any](items=[show(row) for row in shown], next=more)


def write_cursor(key: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, default=str).encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        raise _bad_cursor() from None


def id_cursor(text: str | None, otherwise: int) -> int:
    """A cursor that is a snowflake."""
    value = read_cursor(text)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**63:
        raise _bad_cursor()
    return value


def uuid_cursor(text: str | None) -> UUID | None:
    value = read_cursor(text)
    try:
        return None if value is None else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise _bad_cursor() from None


def text_cursor(text: str | None) -> str | None:
    """A cursor that is a name."""
    value = read_cursor(text)
    if value is not None and (not isinstance(value, str) or not value.isprintable()):
        raise _bad_cursor()
    return value


def _bad_cursor() -> MalformedError:
    return MalformedError("The cursor is not one of ours.", remedy="Use 'next' of the page before, unchanged.")
