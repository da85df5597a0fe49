"""Output of commands: data on standard output as a table or JSON, messages on standard error."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import click
from pydantic import BaseModel

from aaiclick.cli.output_option import output_option as output_option

Model = TypeVar("Model", bound=BaseModel)

Row = dict[str, Any]
RowFormat = Callable[[Row], Row]

CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Control, invisible and bidirectional characters."""


def print_record(record: dict[str, Any], output: str) -> None:
    """Print one record: as a JSON object, or as a table with one row."""
    if output == "json":
        click.echo(json.dumps(record, indent=2, default=str))
    else:
        print_records([record], output)


def print_records(records: Sequence[dict[str, Any]], output: str, *, empty_message: str = "No results.") -> None:
    """Print records that share their keys: as JSON, as a table on a terminal, as tab-separated lines into a pipe.

    Without records, `empty_message` is printed on standard error.
    """
    if output == "json":
        click.echo(json.dumps(list(records), indent=2, default=str))
    elif not records:
        print_message(empty_message)
    elif sys.stdout.isatty():
        tables = importlib.import_module("aaiclick.cli.table_output")  # slow import, only needed on a terminal
        tables.print_table([{name: _cell_text(value) for name, value in record.items()} for record in records])
    else:
        for row in [list(records[0]), *(list(record.values()) for record in records)]:
            click.echo("\t".join(_cell_text(value) for value in row))


def print_rows(
    rows: Iterable[Row],
    output: str,
    to_table_row: RowFormat,
    to_json_record: RowFormat,
    *,
    empty_message: str = "No results.",
) -> None:
    """Print rows of the database or the API, formatted for a table or as JSON."""
    print_records(
        [(to_json_record if output == "json" else to_table_row)(row) for row in rows],
        output,
        empty_message=empty_message,
    )


def print_models(
    models: Iterable[Model], output: str, to_table_row: Callable[[Model], Row], *, empty_message: str = "No results."
) -> None:
    """Print models of the API: all fields as JSON, or the fields of a table."""
    print_records([_to_record(model, output, to_table_row) for model in models], output, empty_message=empty_message)


def print_model(model: Model, output: str, to_table_row: Callable[[Model], Row]) -> None:
    """Print one model of the API: all fields as JSON, or the fields of a table."""
    print_record(_to_record(model, output, to_table_row), output)


def _to_record(model: Model, output: str, to_table_row: Callable[[Model], Row]) -> Row:
    return model.model_dump(mode="json") if output == "json" else to_table_row(model)


def select_fields(row: Row, names: Iterable[str]) -> Row:
    """Select fields of a row, with values converted for JSON."""
    return {name: _json_value(name, row[name]) for name in names}


def print_message(message: str) -> None:
    """Print a message on standard error, apart from the data."""
    click.echo(message, err=True)


def describe_cancellation(name: str, outcome: str) -> str:
    match outcome:
        case "cancelled":
            return f"{name} cancelled."
        case "requested":
            return f"Cancellation of {name[0].lower()}{name[1:]} requested."
        case _:
            return f"{name} has already finished."


def _json_value(name: str, value: object) -> object:
    """Convert times to ISO 8601 and ids to strings, since JSON parsers round large numbers."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    is_id = isinstance(value, UUID) or (isinstance(value, int) and (name == "id" or name.endswith("_id")))
    return str(value) if is_id else value


def _cell_text(value: object) -> str:
    """Format a value in one line, with control and bidirectional characters escaped."""
    return "" if value is None else escape_control_characters(str(value).replace("\t", " ").replace("\n", " "))


def escape_control_characters(text: str) -> str:
    return CONTROL_CHARACTERS.sub(_escape_control, text)


def _escape_control(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
