"""Tables for terminals: they fit the width, ids are never broken, and long texts go to lines of their own."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime

import click
from rich.cells import cell_len

GAP = 2
TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d):\d\dZ")
LONG_COLUMNS = ("error", "why", "detail", "where", "output", "description", "value", "remedy")
"""Columns that are printed below their row if the table is too wide, the first ones first."""
MIN_WIDTH = 12
"""Width to which other text columns are folded at most."""
STATE_STYLES = {"ok": "green", "running": "green", "warning": "yellow", "failed": "red"}


def format_table(records: Sequence[dict[str, str]], width: int, today: str, *, has_colours: bool = False) -> list[str]:
    """Lines of a table. Columns without values are left out; times of today have no date."""
    names = [name for name in records[0] if any(record[name] for record in records)] or list(records[0])[:1]
    rows = [{name: _shorten_time(record[name], today) for name in names} for record in records]
    widths = {name: max(cell_len(name), *(cell_len(row[name]) for row in rows)) for name in names}
    below: list[str] = []
    for name in LONG_COLUMNS:
        if _total(widths) > width and name in widths and len(widths) > 1:
            below.insert(0, name)
            del widths[name]
    _fold_widest(widths, width)
    header = _format_line({name: name for name in widths}, widths, has_colours=False)
    lines = [click.style(header, bold=True) if has_colours else header]
    for row in rows:
        lines += _format_row(row, widths, has_colours)
        for name in below:
            if row[name]:
                label = f"  {name}: "
                lines += textwrap.wrap(row[name], max(width, 40), initial_indent=label, subsequent_indent="    ")
    return lines


def print_table(records: Sequence[dict[str, str]]) -> None:
    """Print a table that fits the terminal."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    has_colours = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    for line in format_table(records, shutil.get_terminal_size().columns, today, has_colours=has_colours):
        click.echo(line)


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _fold_widest(widths: dict[str, int], width: int) -> None:
    """Narrow the widest columns until the table fits; the first column, the id, stays whole."""
    foldable: list[str] = list(widths)[1:]
    while _total(widths) > width:
        widest = max(foldable, key=lambda name: widths[name], default="")
        if widths.get(widest, 0) <= MIN_WIDTH:
            return
        widths[widest] -= 1


def _format_row(row: dict[str, str], widths: dict[str, int], has_colours: bool) -> list[str]:
    cells = {name: _fold(row[name], widths[name]) for name in widths}
    height = max(len(lines) for lines in cells.values())
    return [
        _format_line({name: lines[n] if n < len(lines) else "" for name, lines in cells.items()}, widths, has_colours)
        for n in range(height)
    ]


def _fold(text: str, width: int) -> list[str]:
    """Break a text into lines of a width, at any character: names have few spaces."""
    lines: list[str] = [""]
    for letter in text:
        if cell_len(lines[-1] + letter) > width:
            lines.append("")
        lines[-1] += letter
    return lines


def _format_line(cells: dict[str, str], widths: dict[str, int], has_colours: bool) -> str:
    padded = [
        (click.style(text, fg=STATE_STYLES[text]) if has_colours and text in STATE_STYLES else text)
        + " " * (widths[name] - cell_len(text))
        for name, text in cells.items()
    ]
    return (" " * GAP).join(padded).rstrip()


def _shorten_time(text: str, today: str) -> str:
    match = TIME.fullmatch(text)
    if match is None:
        return text
    return text[11:] if match[1] == today else f"{match[1][5:]} {match[2]}Z"
