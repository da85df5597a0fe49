"""Previews of task results: values and first rows instead of table names."""

from __future__ import annotations

from typing import Any, cast

from aaiclick.data.context import DataContext
from aaiclick.data.errors import DataError
from aaiclick.data.view import is_reference, open_reference
from aaiclick.endpoints import ClickHouseEndpoint
from aaiclick.errors import AaiclickError

MAX_ROWS = 10
MAX_CHARACTERS = 2_000
MAX_CONDITION_CHARACTERS = 1_000
"""Longest View condition that is parsed for a preview, since the server parses it between other requests."""


async def preview_result(form: object, endpoint: ClickHouseEndpoint) -> str:
    """Format a task result as text: values, or the first rows of a table."""
    try:
        async with DataContext(endpoint):
            text = await _format_result(form)
    except AaiclickError as error:
        return f"cannot be shown: {error.what}"
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


async def _format_result(form: object) -> str:
    if isinstance(form, dict) and is_reference(cast("Any", form)):
        fields = cast("dict[str, Any]", form)
        if len(str(fields.get("where") or "")) > MAX_CONDITION_CHARACTERS:
            raise DataError(f"The condition of the View has more than {MAX_CONDITION_CHARACTERS:,} characters.")
        obj = await open_reference(fields)
        rows = await obj.count()
        value = await (obj if rows <= MAX_ROWS else obj.head(MAX_ROWS)).data()
        return repr(value) if rows <= MAX_ROWS else f"{value!r} … ({rows:,} rows)"
    if isinstance(form, dict):
        fields = cast("dict[str, Any]", form)
        return "{" + ", ".join([f"{name!r}: {await _format_result(value)}" for name, value in fields.items()]) + "}"
    if isinstance(form, list):
        return "[" + ", ".join([await _format_result(value) for value in cast("list[Any]", form)]) + "]"
    return repr(form)
