"""Upgrades, downgrades and checks of the schema, and their errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import asyncpg
import pytest

from aaiclick.errors import SchemaError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store import alembic_commands
from aaiclick.store.migrate import (
    check_schema,
    downgrade,
    get_current_revision,
    require_current,
    run_migrate_command,
    upgrade,
    upgrade_if_needed,
)
from aaiclick.store.migrations import HEAD

ON_ONE = pytest.mark.parametrize("postgres_server", ["embedded"], indirect=True)
"""Messages do not depend on the version of the server."""


async def execute(endpoint: PostgresEndpoint, *statements: str) -> None:
    connection = await asyncpg.connect(endpoint.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def leftovers(endpoint: PostgresEndpoint) -> list[str]:
    """Objects in the schema besides the version table."""
    connection = await asyncpg.connect(endpoint.dsn)
    try:
        rows = await connection.fetch("""
            SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
            UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
            UNION ALL SELECT typname::text FROM pg_type WHERE typnamespace = 'public'::regnamespace""")
        return [row[0] for row in rows if "aaiclick_version" not in row[0]]
    finally:
        await connection.close()


async def test_upgrade_downgrade_and_upgrade_again(postgres_endpoint: PostgresEndpoint) -> None:
    await upgrade(postgres_endpoint)
    assert await get_current_revision(postgres_endpoint) == HEAD
    await downgrade(postgres_endpoint, "base")
    assert await get_current_revision(postgres_endpoint) is None
    assert await leftovers(postgres_endpoint) == []
    await upgrade(postgres_endpoint)
    await check_schema(postgres_endpoint)


async def test_concurrent_upgrades_are_serialised(postgres_endpoint: PostgresEndpoint) -> None:
    await asyncio.gather(*(upgrade_if_needed(postgres_endpoint) for _ in range(4)))
    await check_schema(postgres_endpoint)


async def test_failed_upgrade_is_rolled_back(postgres_endpoint: PostgresEndpoint) -> None:
    await execute(postgres_endpoint, "CREATE TABLE outbox (mine integer)")
    with pytest.raises(Exception, match="outbox"):
        await upgrade(postgres_endpoint)
    assert await leftovers(postgres_endpoint) == ["outbox", "outbox", "_outbox"]
    assert await get_current_revision(postgres_endpoint) is None


@ON_ONE
async def test_current_schema_is_checked_without_alembic(migrated: PostgresEndpoint) -> None:
    program = (
        "import asyncio, sys; from aaiclick.settings import parse_postgres_url; from aaiclick.store import migrate; "
        "asyncio.run(migrate.upgrade_if_needed(parse_postgres_url(sys.argv[1]))); assert 'alembic' not in sys.modules"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program, migrated.dsn], check=True, cwd="/")


@ON_ONE
async def test_schema_of_a_newer_version_is_refused(migrated: PostgresEndpoint) -> None:
    await execute(migrated, "UPDATE aaiclick_version SET version_num = '9999'")
    with pytest.raises(SchemaError, match="revision 9999, which this version of aaiclick does not know") as caught:
        await upgrade_if_needed(migrated)
    assert "Upgrade aaiclick here" in caught.value.remedy
    with pytest.raises(SchemaError, match="a newer version made it") as caught:
        await require_current(migrated)
    assert "Upgrade aaiclick here" in caught.value.remedy
    assert await get_current_revision(migrated) == "9999"


@ON_ONE
async def test_tables_of_an_earlier_build_are_refused(
    migrated: PostgresEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    await upgrade_if_needed(migrated)
    for comment in ("NULL", "'initial schema 0123456789abcdef'"):
        await execute(migrated, f"COMMENT ON TABLE aaiclick_version IS {comment}")
        for check in (upgrade_if_needed, require_current, call):
            with pytest.raises(SchemaError, match="made by an earlier build") as caught:
                await check(migrated)
            assert "AAICLICK_HOME" in caught.value.remedy
    assert await call(migrated, "stamp", "head") == 0  # by an operator, after a comparison
    await upgrade_if_needed(migrated)
    capsys.readouterr()


@ON_ONE
async def test_error_of_an_unknown_revision_names_history(migrated: PostgresEndpoint) -> None:
    with pytest.raises(SchemaError, match="nonsense") as caught:
        await upgrade(migrated, "nonsense")
    assert "aaiclick migrate history" in caught.value.remedy


async def test_check_reports_manual_changes(migrated: PostgresEndpoint) -> None:
    changes = (
        "ALTER TABLE tasks DROP COLUMN outputs",
        "ALTER TABLE tasks ADD COLUMN mine integer",
        "DROP INDEX tasks_due",
        "ALTER TABLE jobs ALTER name TYPE varchar(10)",
    )
    await execute(migrated, *changes)
    with pytest.raises(SchemaError, match="differs from the models") as caught:
        await check_schema(migrated)
    for name in ("add_column", "outputs", "remove_column", "mine", "add_index", "tasks_due", "modify_type", "name"):
        assert f"'{name}'" in caught.value.what


@ON_ONE
async def test_check_ignores_other_tables(migrated: PostgresEndpoint) -> None:
    await execute(migrated, "CREATE TABLE mine (id integer)", "CREATE TABLE alembic_version (version_num text)")
    await check_schema(migrated)


@ON_ONE
async def test_check_of_an_old_schema_names_migrate(postgres_endpoint: PostgresEndpoint) -> None:
    with pytest.raises(SchemaError, match="is behind this version") as caught:
        await check_schema(postgres_endpoint)
    assert "aaiclick migrate" in caught.value.remedy


def refuse(endpoint: PostgresEndpoint, foreign_tables: Sequence[str]) -> None:
    raise SchemaError(f"not allowed to change the tables of {endpoint}: {list(foreign_tables)}")


async def call(endpoint: PostgresEndpoint, *argv: str) -> int:
    """Run the command in a thread, since it starts its own event loop."""
    return await asyncio.to_thread(run_migrate_command, argv, lambda: endpoint, refuse)


@ON_ONE
async def test_database_of_another_application_is_not_changed_unasked(postgres_endpoint: PostgresEndpoint) -> None:
    await execute(postgres_endpoint, "CREATE TABLE shop_orders (id integer)")
    with pytest.raises(SchemaError, match="tables of another application: shop_orders"):
        await upgrade_if_needed(postgres_endpoint)
    with pytest.raises(SchemaError, match="shop_orders"):
        await call(postgres_endpoint)
    with pytest.raises(SchemaError, match="shop_orders"):
        await call(postgres_endpoint, "upgrade", "head")
    assert await get_current_revision(postgres_endpoint) is None
    assert await call(postgres_endpoint, "--yes") == 0
    assert await call(postgres_endpoint) == 0, "the schema exists: nothing is asked"
    await upgrade_if_needed(postgres_endpoint)


@ON_ONE
async def test_migrate_command_line(postgres_endpoint: PostgresEndpoint, capsys: pytest.CaptureFixture[str]) -> None:
    assert await call(postgres_endpoint, "current") == 0
    assert capsys.readouterr().out.startswith("base (no revision")
    assert await call(postgres_endpoint) == 0
    assert capsys.readouterr().err == f"The schema went from revision base to {HEAD}.\n"
    assert await call(postgres_endpoint, "current") == 0
    assert capsys.readouterr().out == f"{HEAD} (head)\n"
    assert await call(postgres_endpoint, "upgrade", "head") == 0
    assert capsys.readouterr().err == f"The schema stays at revision {HEAD}.\n"
    assert await call(postgres_endpoint, "check") == 0
    with pytest.raises(SchemaError, match="not allowed"):
        await call(postgres_endpoint, "downgrade", "base")
    assert await get_current_revision(postgres_endpoint) == HEAD
    assert await call(postgres_endpoint, "downgrade", "base", "--yes") == 0
    capsys.readouterr()
    assert await call(postgres_endpoint, "stamp", "head") == 0
    assert capsys.readouterr().err == f"The schema counts as revision {HEAD} now.\n"
    assert await get_current_revision(postgres_endpoint) == HEAD


@ON_ONE
async def test_stamp_purge_replaces_an_unknown_revision(migrated: PostgresEndpoint) -> None:
    await execute(migrated, "UPDATE aaiclick_version SET version_num = '9999'")
    with pytest.raises(SchemaError, match="9999"):
        await call(migrated, "stamp", "head")
    assert await call(migrated, "stamp", "head", "--purge") == 0
    assert await get_current_revision(migrated) == HEAD


async def test_printed_statements_create_the_schema(
    postgres_endpoint: PostgresEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await call(postgres_endpoint, "upgrade", "--sql") == 0
    await execute(postgres_endpoint, capsys.readouterr().out)
    await check_schema(postgres_endpoint)
    assert await call(postgres_endpoint, "downgrade", "base", "--sql") == 0
    await execute(postgres_endpoint, capsys.readouterr().out)
    assert await leftovers(postgres_endpoint) == []


@ON_ONE
async def test_migration_lock_timeout_is_reported(
    postgres_endpoint: PostgresEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alembic_commands, "LOCK_SECONDS", 1)
    other = await asyncpg.connect(postgres_endpoint.dsn)
    try:
        async with other.transaction():
            await other.execute("SELECT pg_advisory_xact_lock($1)", alembic_commands.MIGRATION_LOCK_KEY)
            with pytest.raises(SchemaError, match="Another process has been migrating"):
                await upgrade(postgres_endpoint)
    finally:
        await other.close()
