"""The statements of the engine: one per file in `sql/`, read once. What runs an installation has no others; chaos and
`aaiclick.testing` have some of their own.

`{jobs.*}` in one stands for the columns that this release knows (`sql/columns/`). `*` would be what the table has: with
the column that the next release adds, a session that has prepared the statement is refused amid what it does.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_COLUMNS = re.compile(r"\{(\w+)\.\*\}")


@cache
def statement(name: str) -> str:
    """The text of `sql/{name}.sql`."""
    return _COLUMNS.sub(lambda found: _read(f"columns/{found[1]}").rstrip(), _read(name))


def _read(name: str) -> str:
    return (files("aaiclick.store") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
