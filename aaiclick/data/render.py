"""Render rows as a rich table (terminal) or an HTML table (notebook)."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from rich.table import Table
from rich.text import Text

from aaiclick.data.types import DataType

MAX_CELL_WIDTH = 60


def _format_cell(value: object) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= MAX_CELL_WIDTH else text[: MAX_CELL_WIDTH - 1] + "…"


def rich_table(columns: list[list[object]], schema: Mapping[str, DataType], rows: int) -> Table:
    """Render the first rows; the caption says if there are more."""
    table = Table(header_style="bold")
    for name, dtype in schema.items():
        table.add_column(Text(f"{name}\n{dtype}"), justify="right" if dtype.is_numeric else "left", overflow="fold")
    for row in list(zip(*columns, strict=True))[:rows]:
        table.add_row(*(Text(_format_cell(value), style="dim" if value is None else "") for value in row))
    table.caption = _table_caption(columns, rows)
    return table


def html_table(columns: list[list[object]], schema: Mapping[str, DataType], rows: int) -> str:
    head = "".join(f"<th>{escape(name)}<br><small>{escape(str(dtype))}</small></th>" for name, dtype in schema.items())
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_format_cell(value))}</td>" for value in row) + "</tr>"
        for row in list(zip(*columns, strict=True))[:rows]
    )
    caption = f"<caption>{_table_caption(columns, rows)}</caption>" if _table_caption(columns, rows) else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_schema(schema: Mapping[str, DataType], title: str) -> str:
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(dtype))}</td></tr>" for name, dtype in schema.items())
    head = "<thead><tr><th>column</th><th>type</th></tr></thead>"
    return f"<table><caption>{escape(title)}</caption>{head}<tbody>{rows}</tbody></table>"


def _table_caption(columns: list[list[object]], rows: int) -> str:
    return f"first {rows} rows; there are more" if columns and len(columns[0]) > rows else ""
