"""`aaiclick migrate`: the PostgreSQL schema, by Alembic, from any directory."""

from __future__ import annotations

import sys

import click

from aaiclick.cli import remote
from aaiclick.local import find_postgres
from aaiclick.store.migrate import run
from aaiclick.targets import PostgresTarget


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def migrate(arguments: tuple[str, ...]) -> int:
    """Bring the PostgreSQL schema up to date, or run an Alembic command.

    \b
    aaiclick migrate                    upgrade to the newest revision
    aaiclick migrate current            the revision the database is at
    aaiclick migrate history            all revisions
    aaiclick migrate upgrade REV        up to a revision
    aaiclick migrate downgrade REV      down to a revision (base: nothing left)
    aaiclick migrate stamp REV          record a revision without running it
    aaiclick migrate check              whether models and schema agree
    aaiclick migrate heads|branches|show REV
    """

    def target() -> PostgresTarget:
        if remote.is_remote():
            remote.refuse("'migrate'")
        found = find_postgres()
        if "downgrade" in arguments and sys.stdin.isatty():
            click.confirm(f"Tables and rows of {found} may be dropped for good. Go on?", abort=True, err=True)
        return found

    return run(list(arguments), target)
