"""How commands print: data on standard output, messages on standard error; a table for people, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import click

Command = TypeVar("Command", bound=Callable[..., Any])

Row = dict[str, Any]
Shape = Callable[[Row], Row]

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


def print_rows(
    rows: Iterable[Row], output: str, line: Shape, facts: Shape, *, nothing: str = "Nothing to show."
) -> None:
    """Print what the databases or the API have said: by `line` for people, by `facts` as JSON."""
    print_records([(facts if output == "json" else line)(row) for row in rows], output, nothing=nothing)


def print_row(row: Row, output: str, line: Shape, facts: Shape) -> None:
    """The same of one thing."""
    print_record((facts if output == "json" else line)(row), output)


def named(row: Row, names: Iterable[str]) -> Row:
    """Some of what is known of a thing as it is in JSON, by the names that the API has for it."""
    return {name: _plain(name, row[name]) for name in names}


def note(message: str) -> None:
    """A message to the person at the terminal; never part of the data."""
    click.echo(message, err=True)


def cancellation_text(name: str, outcome: str) -> str:
    match outcome:
        case "cancelled":
            return f"{name} is cancelled."
        case "requested":
            return f"Cancellation of {name[0].lower()}{name[1:]} requested."
        case _:
            return f"{name} was over already."


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


def _plain(name: str, value: Any) -> Any:
    """Times with their zone; ids as texts, which no program rounds."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    is_id = isinstance(value, UUID) or (isinstance(value, int) and (name == "id" or name.endswith("_id")))
    return str(value) if is_id else value


def _text(value: object) -> str:
    """In one line, and without anything that moves the cursor or turns the direction of what follows."""
    return "" if value is None else UNSEEN.sub(_seen, str(value).replace("\t", " ").replace("\n", " "))


def _seen(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
