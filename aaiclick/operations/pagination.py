"""Keyset pagination: a page of a list, and the opaque cursor that holds the key of its last row."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from aaiclick.api.field_types import Page
from aaiclick.errors import RequestError

T = TypeVar("T")
Row = TypeVar("Row")


class CursorError(RequestError):
    """A cursor is not one of a previous page."""


def make_page(rows: Sequence[Row], limit: int, to_item: Callable[[Row], T], key: Callable[[Row], object]) -> Page[T]:
    """Make a page of rows that were selected with `limit + 1`."""
    page_rows = rows[:limit]
    next_cursor = write_cursor(key(page_rows[-1])) if len(rows) > limit else None
    return Page[Any](items=[to_item(row) for row in page_rows], next=next_cursor)


def write_cursor(key: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, default=str).encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        raise invalid_cursor() from None


def read_id_cursor(text: str | None, default: int) -> int:
    """Read a cursor that is a snowflake."""
    value = read_cursor(text)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**63:
        raise invalid_cursor()
    return value


def read_uuid_cursor(text: str | None) -> UUID | None:
    value = read_cursor(text)
    try:
        return None if value is None else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise invalid_cursor() from None


def read_text_cursor(text: str | None) -> str | None:
    """Read a cursor that is a name."""
    value = read_cursor(text)
    if value is not None and (not isinstance(value, str) or not value.isprintable()):
        raise invalid_cursor()
    return value


def invalid_cursor() -> CursorError:
    return CursorError("Invalid cursor.", remedy="Use 'next' of the previous page, unchanged.")
