"""`aaiclick migrate`: upgrade the PostgreSQL schema with Alembic."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from aaiclick.cli import remote
from aaiclick.errors import SchemaError
from aaiclick.local import find_postgres
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.migrate import describe_tables, run_migrate_command


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def migrate(arguments: tuple[str, ...]) -> int:
    """Upgrade the PostgreSQL schema, or run an Alembic command.

    \b
    aaiclick migrate                    upgrade to the newest revision; asks if the database has foreign tables
    aaiclick migrate current            the revision the database is at
    aaiclick migrate history            all revisions
    aaiclick migrate upgrade REV        up to a revision
    aaiclick migrate downgrade REV      down to a revision (base: drop everything); asks first, unless --yes
    aaiclick migrate stamp REV          record a revision without running it
    aaiclick migrate check              check that models and schema match
    aaiclick migrate heads|branches|show REV
    """

    def endpoint() -> PostgresEndpoint:
        if remote.is_remote():
            remote.refuse_remote("'migrate'")
        return find_postgres()

    return run_migrate_command(list(arguments), endpoint, _confirm)


def _confirm(endpoint: PostgresEndpoint, foreign_tables: Sequence[str]) -> None:
    """Ask before tables are dropped, or created among tables of another application."""
    if foreign_tables:
        what = f"{endpoint} contains tables of another application: {describe_tables(foreign_tables)}."
        question = f"{what} Create the tables of aaiclick there?"
        remedy = "Use a database of its own, or run it with --yes to create the tables of aaiclick there."
    else:
        what = f"A downgrade permanently deletes tables and rows of {endpoint}, and there is no terminal to confirm it."
        question = f"Tables and rows of {endpoint} will be deleted permanently. Continue?"
        remedy = "Make a backup, then run it with --yes."
    if not sys.stdin.isatty():
        raise SchemaError(what, remedy=remedy)
    click.confirm(question, abort=True, err=True)
