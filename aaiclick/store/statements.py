"""The statements of the engine: one per file in `sql/`, read once. Nothing else in aaiclick writes PostgreSQL."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """The text of `sql/{name}.sql`."""
    return (files("aaiclick.store") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
