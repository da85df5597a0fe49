"""Previews of task results: values and first rows instead of table names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from aaiclick.data.context import DataContext
from aaiclick.data.errors import DataError
from aaiclick.data.io.from_arrow import normalise, to_python
from aaiclick.data.io.literal_codec import EncodedLiteral
from aaiclick.data.view import is_reference, open_reference
from aaiclick.endpoints import ClickHouseEndpoint
from aaiclick.errors import AaiclickError

MAX_ROWS = 10
MAX_CHARACTERS = 2_000
MAX_CONDITION_CHARACTERS = 1_000
"""Longest View condition that is parsed for a preview, since the server parses it between other requests."""


async def preview_result(
    form: object, endpoint: ClickHouseEndpoint, literals: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Format a task result as text: values, or the first rows of a table.

    `literals` are encoded, by table id; others are looked up in the store of this process.
    """
    try:
        text = _format_literal(form, literals)
        if text is None:
            async with DataContext(endpoint) as context:
                # Held while the result is formatted, since the context holds tables weakly.
                _tables = [context.open_literal(EncodedLiteral(name, value)) for name, value in literals.items()]
                text = await _format_result(form)
    except AaiclickError as error:
        return f"cannot be shown: {error.what}"
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def _format_literal(form: object, literals: Mapping[str, str]) -> str | None:
    """Format a result that is one literal, without ClickHouse."""
    fields = cast("dict[str, Any]", form) if isinstance(form, dict) else {}
    if fields.get("object_type") != "object" or fields.get("table_id") not in literals:
        return None
    literal = EncodedLiteral(fields["table_id"], literals[fields["table_id"]])
    if literal.is_plain:
        return _format_plain(literal.plain_value())
    rows = literal.rows()
    count = rows.table.num_rows
    value = to_python(normalise(rows.table.slice(0, MAX_ROWS), rows.columns), rows.columns, rows.shape)
    return repr(value) if count <= MAX_ROWS else f"{value!r} … ({count:,} rows)"


def _format_plain(value: object) -> str:
    items: list[object] = cast("list[object]", value) if isinstance(value, list) else []
    return f"{value!r}" if len(items) <= MAX_ROWS else f"{items[:MAX_ROWS]!r} … ({len(items):,} rows)"


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
