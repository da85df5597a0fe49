"""Moving the schema: forwards, backwards, all at once, and what is said when it cannot be moved."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import asyncpg
import pytest

from aaiclick.errors import SchemaError
from aaiclick.store import alembic_commands
from aaiclick.store.migrate import check, current_revision, downgrade, ensure_current, require_current, run, upgrade
from aaiclick.store.migrations import HEAD
from aaiclick.targets import PostgresTarget

ON_ONE = pytest.mark.parametrize("postgres_server", ["embedded"], indirect=True)
"""What is said and refused is ours, on whatever server."""


async def execute(target: PostgresTarget, *statements: str) -> None:
    connection = await asyncpg.connect(target.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def leftovers(target: PostgresTarget) -> list[str]:
    """Whatever is in the schema besides Alembic's own table."""
    connection = await asyncpg.connect(target.dsn)
    try:
        rows = await connection.fetch("""
            SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
            UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
            UNION ALL SELECT typname::text FROM pg_type WHERE typnamespace = 'public'::regnamespace""")
        return [row[0] for row in rows if "aaiclick_version" not in row[0]]
    finally:
        await connection.close()


async def test_up_down_to_nothing_and_up_again(postgres_target: PostgresTarget) -> None:
    await upgrade(postgres_target)
    assert await current_revision(postgres_target) == HEAD
    await downgrade(postgres_target, "base")
    assert await current_revision(postgres_target) is None
    assert await leftovers(postgres_target) == []
    await upgrade(postgres_target)
    await check(postgres_target)


async def test_upgrades_at_the_same_time_take_turns(postgres_target: PostgresTarget) -> None:
    await asyncio.gather(*(ensure_current(postgres_target) for _ in range(4)))
    await check(postgres_target)


async def test_a_failed_upgrade_leaves_nothing(postgres_target: PostgresTarget) -> None:
    await execute(postgres_target, "CREATE TABLE outbox (mine integer)")
    with pytest.raises(Exception, match="outbox"):
        await upgrade(postgres_target)
    assert await leftovers(postgres_target) == ["outbox", "outbox", "_outbox"]
    assert await current_revision(postgres_target) is None


@ON_ONE
async def test_a_current_schema_is_left_alone_without_alembic(migrated: PostgresTarget) -> None:
    program = (
        "import asyncio, sys; from aaiclick.settings import parse_postgres_url; from aaiclick.store import migrate; "
        "asyncio.run(migrate.ensure_current(parse_postgres_url(sys.argv[1]))); assert 'alembic' not in sys.modules"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program, migrated.dsn], check=True, cwd="/")


@ON_ONE
async def test_a_schema_of_a_newer_version_is_refused(migrated: PostgresTarget) -> None:
    await execute(migrated, "UPDATE aaiclick_version SET version_num = '9999'")
    with pytest.raises(SchemaError, match="revision 9999, which this version of aaiclick does not know") as caught:
        await ensure_current(migrated)
    assert "Upgrade aaiclick here" in caught.value.remedy
    with pytest.raises(SchemaError, match="a newer version made it") as caught:
        await require_current(migrated)
    assert "Upgrade aaiclick here" in caught.value.remedy
    assert await current_revision(migrated) == "9999"


@ON_ONE
async def test_tables_of_an_earlier_build_are_refused(
    migrated: PostgresTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    await ensure_current(migrated)
    for comment in ("NULL", "'initial schema 0123456789abcdef'"):
        await execute(migrated, f"COMMENT ON TABLE aaiclick_version IS {comment}")
        for look in (ensure_current, require_current, call):
            with pytest.raises(SchemaError, match="made by an earlier build") as caught:
                await look(migrated)
            assert "AAICLICK_HOME" in caught.value.remedy
    assert await call(migrated, "stamp", "head") == 0  # by an operator who has compared them
    await ensure_current(migrated)
    capsys.readouterr()


@ON_ONE
async def test_an_unknown_revision_names_the_command_that_lists_them(migrated: PostgresTarget) -> None:
    with pytest.raises(SchemaError, match="nonsense") as caught:
        await upgrade(migrated, "nonsense")
    assert "aaiclick migrate history" in caught.value.remedy


async def test_check_finds_what_was_changed_by_hand(migrated: PostgresTarget) -> None:
    changes = (
        "ALTER TABLE tasks DROP COLUMN log_path",
        "ALTER TABLE tasks ADD COLUMN mine integer",
        "DROP INDEX tasks_due",
        "ALTER TABLE jobs ALTER name TYPE varchar(10)",
    )
    await execute(migrated, *changes)
    with pytest.raises(SchemaError, match="differs from the models") as caught:
        await check(migrated)
    for found in ("add_column", "log_path", "remove_column", "mine", "add_index", "tasks_due", "modify_type", "name"):
        assert f"'{found}'" in caught.value.what


@ON_ONE
async def test_check_does_not_mind_other_tables(migrated: PostgresTarget) -> None:
    await execute(migrated, "CREATE TABLE mine (id integer)", "CREATE TABLE alembic_version (version_num text)")
    await check(migrated)


@ON_ONE
async def test_check_says_how_to_catch_up(postgres_target: PostgresTarget) -> None:
    with pytest.raises(SchemaError, match="is behind this version") as caught:
        await check(postgres_target)
    assert "aaiclick migrate" in caught.value.remedy


def refuse(target: PostgresTarget) -> None:
    raise SchemaError(f"nobody allows to drop the tables of {target}")


async def call(target: PostgresTarget, *argv: str) -> int:
    """`run` has a loop of its own."""
    return await asyncio.to_thread(run, argv, lambda: target, refuse)


@ON_ONE
async def test_the_command_line(postgres_target: PostgresTarget, capsys: pytest.CaptureFixture[str]) -> None:
    assert await call(postgres_target, "current") == 0
    assert capsys.readouterr().out.startswith("base (no revision")
    assert await call(postgres_target) == 0
    assert capsys.readouterr().err == f"The schema went from revision base to {HEAD}.\n"
    assert await call(postgres_target, "current") == 0
    assert capsys.readouterr().out == f"{HEAD} (head)\n"
    assert await call(postgres_target, "upgrade", "head") == 0
    assert capsys.readouterr().err == f"The schema stays at revision {HEAD}.\n"
    assert await call(postgres_target, "check") == 0
    with pytest.raises(SchemaError, match="nobody allows"):
        await call(postgres_target, "downgrade", "base")
    assert await current_revision(postgres_target) == HEAD
    assert await call(postgres_target, "downgrade", "base", "--yes") == 0
    capsys.readouterr()
    assert await call(postgres_target, "stamp", "head") == 0
    assert capsys.readouterr().err == f"The schema counts as revision {HEAD} now.\n"
    assert await current_revision(postgres_target) == HEAD


@ON_ONE
async def test_stamp_purge_forgets_an_unknown_revision(migrated: PostgresTarget) -> None:
    await execute(migrated, "UPDATE aaiclick_version SET version_num = '9999'")
    with pytest.raises(SchemaError, match="9999"):
        await call(migrated, "stamp", "head")
    assert await call(migrated, "stamp", "head", "--purge") == 0
    assert await current_revision(migrated) == HEAD


async def test_the_printed_statements_make_the_schema(
    postgres_target: PostgresTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await call(postgres_target, "upgrade", "--sql") == 0
    await execute(postgres_target, capsys.readouterr().out)
    await check(postgres_target)
    assert await call(postgres_target, "downgrade", "base", "--sql") == 0
    await execute(postgres_target, capsys.readouterr().out)
    assert await leftovers(postgres_target) == []


@ON_ONE
async def test_a_migration_that_another_holds_up_says_so(
    postgres_target: PostgresTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alembic_commands, "LOCK_SECONDS", 1)
    other = await asyncpg.connect(postgres_target.dsn)
    try:
        async with other.transaction():
            await other.execute("SELECT pg_advisory_xact_lock($1)", alembic_commands.LOCK_KEY)
            with pytest.raises(SchemaError, match="Somebody else has been changing the schema"):
                await upgrade(postgres_target)
    finally:
        await other.close()
