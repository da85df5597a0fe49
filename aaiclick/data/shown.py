"""What tasks returned, for people: values and first rows instead of the names of tables."""

from __future__ import annotations

from typing import Any, cast

from aaiclick.data.context import DataContext
from aaiclick.data.errors import DataError
from aaiclick.data.view import is_reference, open_reference
from aaiclick.errors import AaiclickError
from aaiclick.targets import ClickHouseTarget

ROWS = 10
CHARACTERS = 2_000
CONDITION = 1_000
"""Longest condition of a View that is shown: the server parses it between other requests."""


async def show(form: Any, target: ClickHouseTarget) -> str:
    """A result in words: values, or the first rows of a table."""
    try:
        async with DataContext(target):
            text = await _text(form)
    except AaiclickError as error:
        return f"cannot be shown: {error.what}"
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]}…"


async def _text(form: Any) -> str:
    if isinstance(form, dict) and is_reference(cast("Any", form)):
        fields = cast("dict[str, Any]", form)
        if len(str(fields.get("where") or "")) > CONDITION:
            raise DataError(f"The condition of the View has more than {CONDITION:,} characters.")
        found = await open_reference(fields)
        rows = await found.count()
        value = await (found if rows <= ROWS else found.head(ROWS)).data()
        return repr(value) if rows <= ROWS else f"{value!r} … ({rows:,} rows)"
    if isinstance(form, dict):
        fields = cast("dict[str, Any]", form)
        return "{" + ", ".join([f"{name!r}: {await _text(each)}" for name, each in fields.items()]) + "}"
    if isinstance(form, list):
        return "[" + ", ".join([await _text(each) for each in cast("list[Any]", form)]) + "]"
    return repr(form)
