"""The schema's version: is it current, make it current, and everything `aaiclick migrate` offers.

Alembic is imported only when it has something to do: a command that finds the schema current pays one short query.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence

import asyncpg

from aaiclick.errors import SchemaError, UnauthorisedError
from aaiclick.store.engine import connect
from aaiclick.store.migrations import HEAD, VERSION_TABLE, check_digest, known_revisions, newer_schema
from aaiclick.targets import PostgresTarget


async def ensure_current(target: PostgresTarget) -> None:
    """Bring the schema to this version's head if it is not there; raises SchemaError if it is past it, or another."""
    if await _checked_revision(target) != HEAD:
        await upgrade(target)


async def require_current(target: PostgresTarget) -> None:
    """Raise SchemaError unless the schema is this version's: for whoever must not change somebody else's database."""
    found = await _checked_revision(target)
    if found is not None and found not in known_revisions():
        raise newer_schema(target, found)
    if found != HEAD:
        raise SchemaError(
            f"{target} is at schema revision {found or 'none'}; this version of aaiclick works with {HEAD}.",
            remedy="Bring it up to date: aaiclick migrate",
        )


async def prepare(target: PostgresTarget, *, embedded: bool) -> None:
    """The embedded database has no administrator, so it is brought up to date; a server is only looked at."""
    await (ensure_current(target) if embedded else require_current(target))


async def current_revision(target: PostgresTarget) -> str | None:
    """The revision the database is at; None before the first migration."""
    return (await _version(target))[0]


async def _checked_revision(target: PostgresTarget) -> str | None:
    """The same; raises SchemaError if an earlier build made the tables."""
    revision, comment = await _version(target)
    if revision in known_revisions():
        check_digest(target, comment)
    return revision


async def _version(target: PostgresTarget) -> tuple[str | None, str | None]:
    """The revision, and what the version table remembers of the build that made it."""
    connection = await connect(target)
    try:
        question = f"SELECT version_num, obj_description('{VERSION_TABLE}'::regclass, 'pg_class') FROM {VERSION_TABLE}"  # noqa: S608
        row = await connection.fetchrow(question)
        return (None, None) if row is None else (row[0], row[1])
    except asyncpg.UndefinedTableError:
        return None, None
    except asyncpg.InsufficientPrivilegeError as error:
        raise UnauthorisedError(
            f"User {target.user!r} may not read the tables of {target}: {error}.",
            remedy=f'Let it: GRANT ALL ON ALL TABLES IN SCHEMA public TO "{target.user}"; or make it their owner.',
        ) from None
    finally:
        await connection.close()


async def upgrade(target: PostgresTarget, revision: str = "head") -> None:
    from aaiclick.store import alembic_commands

    await alembic_commands.upgrade(target, revision)


async def downgrade(target: PostgresTarget, revision: str) -> None:
    from aaiclick.store import alembic_commands

    await alembic_commands.downgrade(target, revision)


async def check(target: PostgresTarget) -> None:
    """Raise SchemaError if the database is behind, or differs from the models."""
    from aaiclick.store import alembic_commands

    await alembic_commands.check(target)


def run(
    argv: Sequence[str], find_target: Callable[[], PostgresTarget], confirm: Callable[[PostgresTarget], None]
) -> int:
    """`aaiclick migrate ARGV`: prints what the command has to say and returns the exit code.

    The target is looked for (and the embedded server started) only by a command that needs a database. `confirm`
    raises unless tables may be dropped.
    """
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    from aaiclick.store import alembic_commands as commands

    match arguments.command:
        case "upgrade" | "downgrade" as direction if arguments.sql:
            sys.stdout.write(commands.script(direction, arguments.revision))
        case "show":
            sys.stdout.write(commands.show(arguments.revision))
        case "history" | "heads" | "branches" as listing:
            sys.stdout.write(commands.listing(listing, verbose=arguments.verbose))
        case _:
            target = find_target()
            if arguments.command == "downgrade" and not arguments.yes:
                confirm(target)
            asyncio.run(_run(arguments, target))
    return 0


async def _run(arguments: argparse.Namespace, target: PostgresTarget) -> None:
    from aaiclick.store import alembic_commands as commands

    match arguments.command:
        case "upgrade" | "downgrade" as direction:
            await _move(target, direction, arguments.revision)
        case "stamp":
            await commands.stamp(target, arguments.revision, purge=arguments.purge)
            sys.stderr.write(f"The schema counts as revision {await current_revision(target) or 'base'} now.\n")
        case "current":
            said = await commands.current(target, verbose=arguments.verbose)
            sys.stdout.write(said or "base (no revision: 'aaiclick migrate' makes the schema)\n")
        case "check":
            await commands.check(target)
            sys.stderr.write("The schema is current and equals the models.\n")
        case _:
            await _move(target, "upgrade", "head")


async def _move(target: PostgresTarget, direction: str, revision: str) -> None:
    before = await (_checked_revision if direction == "upgrade" else current_revision)(target)
    await (upgrade if direction == "upgrade" else downgrade)(target, revision)
    after = await current_revision(target)
    if before == after:
        sys.stderr.write(f"The schema stays at revision {after or 'base'}.\n")
    else:
        sys.stderr.write(f"The schema went from revision {before or 'base'} to {after or 'base'}.\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aaiclick migrate",
        description="Change the PostgreSQL schema. Without a command: upgrade to the newest revision.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, what in (("upgrade", "go forward to a revision"), ("downgrade", "go back to a revision")):
        command = commands.add_parser(name, help=what)
        count, default = ("?", "head") if name == "upgrade" else (None, None)
        steps = "an id, head, base, or a number of steps such as +1 or -1"
        command.add_argument("revision", nargs=count, default=default, help=steps)
        command.add_argument("--sql", action="store_true", help="print the statements instead of running them")
        if name == "downgrade":
            command.add_argument("--yes", action="store_true", help="do not ask before tables are dropped")
    for name, what in (
        ("current", "show the revision of the database"),
        ("history", "list all revisions"),
        ("heads", "show the newest revision"),
        ("branches", "show where revisions branch"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("-v", "--verbose", action="store_true", help="say more about each revision")
    stamp_command = commands.add_parser("stamp", help="record a revision without running it")
    stamp_command.add_argument("revision")
    stamp_command.add_argument("--purge", action="store_true", help="forget what was recorded first, known or not")
    commands.add_parser("check", help="compare the database with the models")
    commands.add_parser("show", help="describe one revision").add_argument("revision")
    return parser
