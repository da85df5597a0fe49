"""`aaiclick migrate`: the PostgreSQL schema, by Alembic, from any directory."""

from __future__ import annotations

import sys

import click

from aaiclick.cli import remote
from aaiclick.errors import SchemaError
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
    aaiclick migrate downgrade REV      down to a revision (base: nothing left); asks first, unless --yes
    aaiclick migrate stamp REV          record a revision without running it
    aaiclick migrate check              whether models and schema agree
    aaiclick migrate heads|branches|show REV
    """

    def target() -> PostgresTarget:
        if remote.is_remote():
            remote.refuse("'migrate'")
        return find_postgres()

    return run(list(arguments), target, _confirm)


def _confirm(target: PostgresTarget) -> None:
    if not sys.stdin.isatty():
        raise SchemaError(
            f"A downgrade drops tables and rows of {target} for good, and there is no terminal to ask at.",
            remedy="Make a backup, then run it with --yes.",
        )
    click.confirm(f"Tables and rows of {target} will be dropped for good. Go on?", abort=True, err=True)
