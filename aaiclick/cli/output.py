"""How commands print: data on standard output, messages on standard error; a table for people, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Controls, and what Unicode has to turn or hide text."""

STATE_STYLES = {
    "ok": "green",
    "running": "green",
    "warning": "yellow",
    "failed": "red",
    "stopped": "dim",
    "skipped": "dim",
}


def output_option(function: Command) -> Command:
    """`-o table|json` for a command that prints data."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Output format.",
    )(function)


def print_record(record: dict[str, Any], output: str) -> None:
    """Print what a command has made or shows: one object as JSON, else as a list of one."""
    if output == "json":
        click.echo(json.dumps(record, indent=2, default=str))
    else:
        print_records([record], output)


def print_records(records: Sequence[dict[str, Any]], output: str, *, nothing: str = "Nothing to show.") -> None:
    """Print records that share their keys: as JSON, as a table on a terminal, as tab-separated lines into a pipe.

    For people, `nothing` says that there are none, beside the data.
    """
    if output == "json":
        click.echo(json.dumps(list(records), indent=2, default=str))
    elif not records:
        note(nothing)
    elif sys.stdout.isatty():
        _print_table(records)
    else:
        for row in [list(records[0]), *(list(record.values()) for record in records)]:
            click.echo("\t".join(_text(value) for value in row))


def note(message: str) -> None:
    """A message to the person at the terminal; never part of the data."""
    click.echo(message, err=True)


def _print_table(records: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console  # heavy: only a terminal needs it
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in records[0]:
        table.add_column(name, overflow="fold")
    for record in records:
        table.add_row(*(Text(_text(value), style=STATE_STYLES.get(_text(value), "")) for value in record.values()))
    Console().print(table)


def _text(value: object) -> str:
    """In one line, and without anything that moves the cursor or turns the direction of what follows."""
    return "" if value is None else UNSEEN.sub(_seen, str(value).replace("\t", " ").replace("\n", " "))


def _seen(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
