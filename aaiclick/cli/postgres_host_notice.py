"""Message that POSTGRES_HOST, which is often set for another application, chooses the database."""

from __future__ import annotations

import os
from functools import cache

import click


@cache
def announce_postgres() -> None:
    """Print once that PostgreSQL is chosen by POSTGRES_HOST; called before something is started or changed."""
    host = os.environ.get("POSTGRES_HOST")
    if host and not os.environ.get("AAICLICK_DATABASE_URL") and not os.environ.get("AAICLICK_SERVER"):
        database = os.environ.get("POSTGRES_DB") or "aaiclick"
        click.echo(
            f"PostgreSQL: database {database!r} at {host}, since POSTGRES_HOST is set. "
            "Unset it to use the embedded server; AAICLICK_DATABASE_URL has priority over it.",
            err=True,
        )
