"""Check and migrate the schema, and the command `aaiclick migrate`.

Alembic is imported only when needed: for a current schema the check is one short query.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence

import asyncpg

from aaiclick.errors import SchemaError, UnauthorisedError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.migrations import HEAD, VERSION_TABLE, check_digest, list_known_revisions, newer_schema_error
from aaiclick.store.postgres_connections import connect
from aaiclick.store.statements import statement

MAX_NAMED_TABLES = 5


async def upgrade_if_needed(endpoint: PostgresEndpoint) -> None:
    """Upgrade the schema to this version's head.

    Raises SchemaError if it is newer, from another build, or if the database belongs to another application.
    """
    revision = await _get_checked_revision(endpoint)
    if revision is None and (tables := await _find_foreign_tables(endpoint)):
        raise SchemaError(
            f"{endpoint} contains tables of another application: {describe_tables(tables)}.",
            remedy="Create a database for aaiclick and name it in AAICLICK_DATABASE_URL, or run 'aaiclick migrate', "
            "which asks before it creates tables there.",
        )
    if revision != HEAD:
        await upgrade(endpoint)


async def _find_foreign_tables(endpoint: PostgresEndpoint) -> list[str]:
    """Tables and views of a database without a schema of aaiclick, at most a hundred.

    The revision is read after them: another process may create the schema meanwhile.
    """
    connection = await connect(endpoint)
    try:
        rows = await connection.fetch(statement("list_schema_tables"), VERSION_TABLE)
    finally:
        await connection.close()
    return [row["name"] for row in rows] if rows and await get_current_revision(endpoint) is None else []


def describe_tables(names: Sequence[str]) -> str:
    """The first names and the number of others."""
    rest = len(names) - MAX_NAMED_TABLES
    return ", ".join(names[:MAX_NAMED_TABLES]) + (f" and {rest} more" if rest > 0 else "")


async def require_current(endpoint: PostgresEndpoint) -> None:
    """Raise SchemaError unless the schema is at this version's head."""
    revision = await _get_checked_revision(endpoint)
    if revision is not None and revision not in list_known_revisions():
        raise newer_schema_error(endpoint, revision)
    if revision != HEAD:
        raise SchemaError(
            f"{endpoint} is at schema revision {revision or 'none'}; this version of aaiclick works with {HEAD}.",
            remedy="Bring it up to date: aaiclick migrate",
        )


async def prepare_schema(endpoint: PostgresEndpoint, *, embedded: bool) -> None:
    """Upgrade the embedded database, which has no administrator; only check an external one."""
    await (upgrade_if_needed(endpoint) if embedded else require_current(endpoint))


async def get_current_revision(endpoint: PostgresEndpoint) -> str | None:
    """The revision of the database; None before the first migration."""
    return (await _read_version(endpoint))[0]


async def _get_checked_revision(endpoint: PostgresEndpoint) -> str | None:
    """The revision of the database; raises SchemaError if an earlier build created the tables."""
    revision, comment = await _read_version(endpoint)
    if revision in list_known_revisions():
        check_digest(endpoint, comment)
    return revision


async def _read_version(endpoint: PostgresEndpoint) -> tuple[str | None, str | None]:
    """The revision, and the comment of the version table, which identifies the build."""
    connection = await connect(endpoint)
    try:
        question = f"SELECT version_num, obj_description('{VERSION_TABLE}'::regclass, 'pg_class') FROM {VERSION_TABLE}"  # noqa: S608
        row = await connection.fetchrow(question)
        return (None, None) if row is None else (row[0], row[1])
    except asyncpg.UndefinedTableError:
        return None, None
    except asyncpg.InsufficientPrivilegeError as error:
        raise UnauthorisedError(
            f"User {endpoint.user!r} may not read the tables of {endpoint}: {error}.",
            remedy=f'Let it: GRANT ALL ON ALL TABLES IN SCHEMA public TO "{endpoint.user}"; or make it their owner.',
        ) from None
    finally:
        await connection.close()


async def upgrade(endpoint: PostgresEndpoint, revision: str = "head") -> None:
    from aaiclick.store import alembic_commands

    await alembic_commands.upgrade(endpoint, revision)


async def downgrade(endpoint: PostgresEndpoint, revision: str) -> None:
    from aaiclick.store import alembic_commands

    await alembic_commands.downgrade(endpoint, revision)


async def check_schema(endpoint: PostgresEndpoint) -> None:
    """Raise SchemaError if the schema is not current, or differs from the models."""
    from aaiclick.store import alembic_commands

    await alembic_commands.check_models(endpoint)


def run_migrate_command(
    argv: Sequence[str],
    find_endpoint: Callable[[], PostgresEndpoint],
    confirm: Callable[[PostgresEndpoint, Sequence[str]], None],
) -> int:
    """Run `aaiclick migrate ARGV`, print its output and return the exit code.

    The endpoint is resolved (and the embedded server started) only by commands that need a database. `confirm` raises
    unless tables may be dropped, or created among tables of another application, which are its second argument.
    """
    try:
        arguments = _create_parser().parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    from aaiclick.store import alembic_commands as commands

    match arguments.command:
        case "upgrade" | "downgrade" as direction if arguments.sql:
            sys.stdout.write(commands.render_script(direction, arguments.revision))
        case "show":
            sys.stdout.write(commands.show_revision(arguments.revision))
        case "history" | "heads" | "branches" as listing:
            sys.stdout.write(commands.list_revisions(listing, verbose=arguments.verbose))
        case _:
            endpoint = find_endpoint()
            if arguments.command == "downgrade" and not arguments.yes:
                confirm(endpoint, ())
            if arguments.command in (None, "upgrade") and not arguments.yes:
                foreign_tables = asyncio.run(_find_foreign_tables(endpoint))
                if foreign_tables:
                    confirm(endpoint, foreign_tables)
            asyncio.run(_run_online(arguments, endpoint))
    return 0


async def _run_online(arguments: argparse.Namespace, endpoint: PostgresEndpoint) -> None:
    from aaiclick.store import alembic_commands as commands

    match arguments.command:
        case "upgrade" | "downgrade" as direction:
            await _migrate_to(endpoint, direction, arguments.revision)
        case "stamp":
            await commands.stamp(endpoint, arguments.revision, purge=arguments.purge)
            sys.stderr.write(f"The schema counts as revision {await get_current_revision(endpoint) or 'base'} now.\n")
        case "current":
            text = await commands.show_current(endpoint, verbose=arguments.verbose)
            sys.stdout.write(text or "base (no revision: 'aaiclick migrate' makes the schema)\n")
        case "check":
            await commands.check_models(endpoint)
            sys.stderr.write("The schema is current and equals the models.\n")
        case _:
            await _migrate_to(endpoint, "upgrade", "head")


async def _migrate_to(endpoint: PostgresEndpoint, direction: str, revision: str) -> None:
    before = await (_get_checked_revision if direction == "upgrade" else get_current_revision)(endpoint)
    await (upgrade if direction == "upgrade" else downgrade)(endpoint, revision)
    after = await get_current_revision(endpoint)
    if before == after:
        sys.stderr.write(f"The schema stays at revision {after or 'base'}.\n")
    else:
        sys.stderr.write(f"The schema went from revision {before or 'base'} to {after or 'base'}.\n")


def _create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aaiclick migrate",
        description="Change the PostgreSQL schema. Without a command: upgrade to the newest revision.",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before tables are created in a foreign database")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, help_text in (("upgrade", "go forward to a revision"), ("downgrade", "go back to a revision")):
        command = commands.add_parser(name, help=help_text)
        count, default = ("?", "head") if name == "upgrade" else (None, None)
        steps = "an id, head, base, or a number of steps such as +1 or -1"
        command.add_argument("revision", nargs=count, default=default, help=steps)
        command.add_argument("--sql", action="store_true", help="print the statements instead of running them")
        what = "tables are dropped" if name == "downgrade" else "tables are created in a foreign database"
        command.add_argument("--yes", action="store_true", default=argparse.SUPPRESS, help=f"do not ask before {what}")
    for name, help_text in (
        ("current", "show the revision of the database"),
        ("history", "list all revisions"),
        ("heads", "show the newest revision"),
        ("branches", "show where revisions branch"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("-v", "--verbose", action="store_true", help="say more about each revision")
    stamp_command = commands.add_parser("stamp", help="record a revision without running it")
    stamp_command.add_argument("revision")
    stamp_command.add_argument("--purge", action="store_true", help="forget what was recorded first, known or not")
    commands.add_parser("check", help="compare the database with the models")
    commands.add_parser("show", help="describe one revision").add_argument("revision")
    return parser
