"""Previews of task results: values and first rows instead of table names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Any, cast

from aaiclick.data.context import DataContext
from aaiclick.data.errors import DataError
from aaiclick.data.io.from_arrow import normalise, to_python
from aaiclick.data.io.literal_result_codec import EncodedLiteral
from aaiclick.data.plain_value_preview import MAX_ROWS, format_plain, shorten_text
from aaiclick.data.view import is_reference, open_reference
from aaiclick.errors import AaiclickError
from aaiclick.server_addresses import ClickHouseEndpoint

MAX_CONDITION_CHARACTERS = 1_000
"""Longest View condition that is parsed for a preview, since the server parses it between other requests."""


async def preview_result(
    form: object, endpoint: ClickHouseEndpoint, literals: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Format a task result as text: values, or the first rows of a table.

    `literals` are encoded, by table id; others are looked up in the store of this process.
    """
    return (await preview_results([form], endpoint, literals))[0]


async def preview_results(
    forms: Iterable[object], endpoint: ClickHouseEndpoint, literals: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Format task results as texts, with one DataContext, which is opened for the first result that needs it."""
    texts: list[str] = []
    async with AsyncExitStack() as stack:
        context: DataContext | None = None
        for form in forms:
            try:
                text = _format_literal(form, literals)
                if text is None:
                    context = context or await stack.enter_async_context(DataContext(endpoint))
                    text = await _format_with_literals(form, context, literals)
            except AaiclickError as error:
                texts.append(f"cannot be shown: {error.what}")
            else:
                texts.append(shorten_text(text))
    return texts


def _iter_table_ids(form: object) -> Iterator[str]:
    if isinstance(form, dict):
        fields = cast("dict[str, Any]", form)
        if is_reference(fields):
            yield str(fields["table_id"])
        else:
            for value in fields.values():
                yield from _iter_table_ids(value)
    elif isinstance(form, list):
        for value in cast("list[Any]", form):
            yield from _iter_table_ids(value)


async def _format_with_literals(form: object, context: DataContext, literals: Mapping[str, str]) -> str:
    names = set(_iter_table_ids(form)) & literals.keys()
    # Held while the result is formatted, since the context holds tables weakly.
    _tables = [context.open_literal(EncodedLiteral(name, literals[name])) for name in names]
    return await _format_result(form)


def _format_literal(form: object, literals: Mapping[str, str]) -> str | None:
    """Format a result that is one literal, without ClickHouse."""
    fields = cast("dict[str, Any]", form) if isinstance(form, dict) else {}
    if fields.get("object_type") != "object" or fields.get("table_id") not in literals:
        return None
    literal = EncodedLiteral(fields["table_id"], literals[fields["table_id"]])
    if literal.is_plain:
        return format_plain(literal.plain_value())
    rows = literal.rows()
    count = rows.table.num_rows
    value = to_python(normalise(rows.table.slice(0, MAX_ROWS), rows.columns), rows.columns, rows.shape)
    return repr(value) if count <= MAX_ROWS else f"{value!r} … ({count:,} rows)"


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
