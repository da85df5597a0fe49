"""PostgreSQL statements by name, parsed once from the files in `sql/`.

A statement begins with a line `-- name: claim_tasks`. Chaos tests and `aaiclick.testing` have statements of their own.

`{jobs.*}` stands for the columns that this release knows (`sql/columns.sql`). With `*`, a column that the next release
adds would change the result, and PostgreSQL would reject the statements that running sessions have prepared. For lists
with types, `{task_options.$3}` stands for typed parameters, the first of which is $3, and `{task_options.$3[]}` for
arrays.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_HEADER = re.compile(r"^-- name: (\w+)\n(?:--.*\n)*", re.MULTILINE)
_COLUMNS = re.compile(r"\{(\w+)\.(?:\*|\$(\d+)(\[\])?)\}")
_COLUMNS_FILE = "columns.sql"
_DIRECTORY = files("aaiclick.store") / "sql"


def statement(name: str) -> str:
    """The text of a statement; raises KeyError if there is none of this name."""
    return load_statements()[name]


@cache
def load_statements() -> dict[str, str]:
    """All statements by name."""
    columns = load_columns()
    statements: dict[str, str] = {}
    for file in _DIRECTORY.iterdir():
        if not file.name.endswith(".sql") or file.name == _COLUMNS_FILE:
            continue
        for name, body in _parse_statements(file.read_text(encoding="utf-8")).items():
            if name in statements:
                raise ValueError(f"There are two statements named {name!r}.")
            statements[name] = _expand_columns(body, columns)
    return statements


@cache
def load_columns() -> dict[str, dict[str, str]]:
    """Table → columns that this release knows, with their types where statements need them."""
    columns: dict[str, dict[str, str]] = {}
    for name, body in _parse_statements((_DIRECTORY / _COLUMNS_FILE).read_text(encoding="utf-8")).items():
        entries = (entry.strip().partition(" ") for entry in _expand_columns(body, columns).split(","))
        columns[name] = {column: column_type for column, _, column_type in entries}
    return columns


def _expand_columns(text: str, columns: dict[str, dict[str, str]]) -> str:
    """Replace `{table.*}` and `{table.$n}` in a statement."""

    def expand(match: re.Match[str]) -> str:
        table, first, array = match.groups(default="")
        if not first:
            return ", ".join(columns[table])
        parameters = enumerate(columns[table].values(), int(first))
        return ", ".join(f"${number}::{column_type}{array}" for number, column_type in parameters)

    return _COLUMNS.sub(expand, text)


def _parse_statements(text: str) -> dict[str, str]:
    """Name → statement without its leading comment."""
    _, *parts = _HEADER.split(text)
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
