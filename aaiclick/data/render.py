"""Rows for eyes: a rich table in a terminal, an HTML table in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from rich.table import Table
from rich.text import Text

from aaiclick.data.types import DataType

WIDTH = 60


def _cell(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def rich_table(columns: list[list[Any]], schema: Mapping[str, DataType], rows: int) -> Table:
    """The first rows; the caption says when there are more."""
    table = Table(header_style="bold")
    for name, kind in schema.items():
        table.add_column(Text(f"{name}\n{kind}"), justify="right" if kind.is_numeric else "left", overflow="fold")
    for row in list(zip(*columns, strict=True))[:rows]:
        table.add_row(*(Text(_cell(value), style="dim" if value is None else "") for value in row))
    table.caption = _caption(columns, rows)
    return table


def html_table(columns: list[list[Any]], schema: Mapping[str, DataType], rows: int) -> str:
    head = "".join(f"<th>{escape(name)}<br><small>{escape(str(kind))}</small></th>" for name, kind in schema.items())
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in list(zip(*columns, strict=True))[:rows]
    )
    caption = f"<caption>{_caption(columns, rows)}</caption>" if _caption(columns, rows) else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_schema(schema: Mapping[str, DataType], title: str) -> str:
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(kind))}</td></tr>" for name, kind in schema.items())
    head = "<thead><tr><th>column</th><th>type</th></tr></thead>"
    return f"<table><caption>{escape(title)}</caption>{head}<tbody>{rows}</tbody></table>"


def _caption(columns: list[list[Any]], rows: int) -> str:
    return f"first {rows} rows; there are more" if columns and len(columns[0]) > rows else ""
