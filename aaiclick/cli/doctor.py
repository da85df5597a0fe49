"""`aaiclick doctor`: check the installation and suggest fixes.

Read-only unless --repair is given. A repair runs the passes of the background loops: expired leases are taken back, due
tasks start, unused tables are dropped. Other problems are not safe to repair without knowing their cause.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import asyncpg
import click

from aaiclick.cli import remote
from aaiclick.cli.output import output_option, print_message, print_records
from aaiclick.data.runtime import clickhouse_client
from aaiclick.errors import EXIT_FAILED, AaiclickError
from aaiclick.local import clickhouse_endpoint, postgres_endpoint
from aaiclick.orchestration.loops import due_task_promoter, reaper
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper
from aaiclick.orchestration.table_audit import find_inconsistencies, forget_missing_names
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.settings import Settings, get_logs_dir, get_settings
from aaiclick.snowflake import extract_machine_id, get_snowflake_id
from aaiclick.store import migrate, postgres_connections
from aaiclick.store.catalog import outbox
from aaiclick.store.engine.invariants import INVARIANTS, check_invariant
from aaiclick.store.migrations import HEAD
from aaiclick.store.tenancy import secrets
from aaiclick.store.tenancy.secret_encryption import missing_key_error

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_EXAMPLES = 3
LOW_DISK_BYTES = 1_000_000_000
MAX_CLOCK_SKEW_SECONDS = 2.0
PING_TIMEOUT_SECONDS = 10.0
"""A ClickHouse that takes longer to report its version counts as unreachable."""
ORPHAN_SECONDS = 3600.0 + 2 * 300.0
"""Age by which an orphaned table should be dropped: the sweeper's threshold plus two of its passes."""


@dataclass(frozen=True)
class DoctorFinding:
    """Result of one check."""

    state: str
    detail: str
    remedy: str = ""


Check = Callable[[Settings], Awaitable[DoctorFinding]]


@click.command()
@click.option("--repair", is_flag=True, help="First repair leases, due tasks, tables and lost names.")
@output_option
def doctor(repair: bool, output: str) -> int:
    """Check the installation and suggest fixes. Exit code 1 if a check fails."""
    if remote.is_remote():
        remote.refuse_remote("'doctor'")
    return run_checks(output, repair=repair)


def run_checks(output: str, *, repair: bool = False) -> int:
    """Run all checks and print them; returns the exit code."""
    findings = asyncio.run(run_all_checks(get_settings(), repair=repair))
    print_records(
        [
            {"check": name, "state": finding.state, "detail": finding.detail, "remedy": finding.remedy}
            for name, finding in findings.items()
        ],
        output,
    )
    failed = [name for name, finding in findings.items() if finding.state == "failed"]
    if failed:
        print_message(f"Failed: {', '.join(failed)}.")
    return EXIT_FAILED if failed else 0


async def run_all_checks(settings: Settings, *, repair: bool) -> dict[str, DoctorFinding]:
    findings: dict[str, DoctorFinding] = {}
    for name, (check, needs) in CHECKS.items():
        if name == "repair" and not repair:
            continue
        missing = [dependency for dependency in needs if findings[dependency].state in ("failed", "skipped")]
        findings[name] = (
            DoctorFinding("skipped", f"needs {missing[0]}") if missing else await _run_check(check, settings)
        )
    return findings


def check_endpoint(endpoint: PostgresEndpoint | ClickHouseEndpoint) -> DoctorFinding:
    """Check one server, for `aaiclick status`."""
    check = _ping_postgres if isinstance(endpoint, PostgresEndpoint) else _ping_clickhouse
    return asyncio.run(_run_check(lambda _: check(endpoint), get_settings()))  # pyright: ignore[reportArgumentType]


async def _run_check(check: Check, settings: Settings) -> DoctorFinding:
    try:
        return await check(settings)
    except AaiclickError as error:
        return DoctorFinding("failed", error.what, error.remedy)
    except asyncpg.PostgresError as error:
        return DoctorFinding(
            "failed", f"PostgreSQL refused: {error}", "Check the rights of the user that aaiclick connects as."
        )


async def _check_home(settings: Settings) -> DoctorFinding:
    if settings.postgres and settings.clickhouse:
        return DoctorFinding("ok", f"{settings.home}, not used: both servers are remote")
    await asyncio.gather(*(find(settings) for find in (postgres_endpoint, clickhouse_endpoint)))
    free = shutil.disk_usage(settings.home).free
    detail = f"{settings.home}, {free / 1e9:.1f} GB free"
    if free < LOW_DISK_BYTES:
        return DoctorFinding(
            "warning", detail, "Free some disk space: both servers refuse writes when the disk is full."
        )
    return DoctorFinding("ok", detail)


async def _check_postgres(settings: Settings) -> DoctorFinding:
    return await _ping_postgres(await postgres_endpoint(settings))


async def _ping_postgres(endpoint: PostgresEndpoint) -> DoctorFinding:
    started = time.perf_counter()
    server = await postgres_connections.check_server(endpoint)
    milliseconds = (time.perf_counter() - started) * 1000
    return DoctorFinding("ok", f"{endpoint}: {server.description.split(' on ')[0]}, answered in {milliseconds:.0f} ms")


async def _check_schema(settings: Settings) -> DoctorFinding:
    endpoint = await postgres_endpoint(settings)
    if settings.postgres is None:
        await migrate.upgrade_if_needed(endpoint)  # like every command that uses the embedded database
    await migrate.require_current(endpoint)
    return DoctorFinding("ok", f"at revision {HEAD}")


async def _repair_all(settings: Settings) -> DoctorFinding:
    postgres, clickhouse = await postgres_endpoint(settings), await clickhouse_endpoint(settings)
    connection = await postgres_connections.connect(postgres)
    try:
        reaped = await _reap_all(connection)
        due = await due_task_promoter.run_once(connection)
        dropped = await PgCleanupWorker(postgres=postgres, clickhouse=clickhouse).run_once()
        dropped += await TableSweeper(postgres=postgres, clickhouse=clickhouse).run_once()
        names = await forget_missing_names(connection, await clickhouse_client.connect(clickhouse))
    finally:
        await connection.close()
    return DoctorFinding(
        "ok",
        f"{reaped['tasks']} leases reclaimed, {reaped['workers']} dead workers, {sum(due.values())} due tasks started, "
        f"{dropped} tables dropped, {names} lost names removed",
    )


async def _reap_all(connection: Connection) -> Counter[str]:
    """Run reaper passes until one finds nothing."""
    total: Counter[str] = Counter()
    while any((counts := await reaper.run_once(connection)).values()):
        total.update(counts)
    return total


async def _check_invariant(name: str, settings: Settings) -> DoctorFinding:
    connection = await postgres_connections.connect(await postgres_endpoint(settings))
    try:
        checked = await check_invariant(connection, name)
    finally:
        await connection.close()
    description = INVARIANTS[name].description
    if not checked.count:
        return DoctorFinding("ok", f"holds: {description}")
    examples = [
        f"{violation.kind} {violation.id}: {violation.finding}" for violation in checked.findings[:MAX_EXAMPLES]
    ]
    more = ["…"] if checked.count > MAX_EXAMPLES else []
    detail = f"{checked.count:,} violations of '{description}': {'; '.join([*examples, *more])}"
    return DoctorFinding("failed", detail, INVARIANTS[name].remedy)


async def _check_events(settings: Settings) -> DoctorFinding:
    connection = await postgres_connections.connect(await postgres_endpoint(settings))
    try:
        counts = await outbox.count_events_by_status(connection)
        failed = await outbox.list_events(connection, status="Failed", limit=1) if counts["Failed"] else []
    finally:
        await connection.close()
    detail = f"{counts['Pending']:,} pending, {counts['Failed']:,} failed"
    if not failed:
        return DoctorFinding("ok", detail)
    error = (failed[0]["last_error"] or "").partition("\n")[0]
    return DoctorFinding(
        "failed",
        f"{detail}; the last one is {failed[0]['id']}: {error:.200}",
        "List them with: aaiclick events ls --status Failed. Fix the cause, then run: aaiclick events retry --all",
    )


async def _check_secrets(settings: Settings) -> DoctorFinding:
    connection = await postgres_connections.connect(await postgres_endpoint(settings))
    try:
        missing = await secrets.find_missing_keys(connection, settings)
    finally:
        await connection.close()
    if not missing:
        return DoctorFinding("ok", "the keys of all stored secrets are available")
    error = missing_key_error(missing[0])
    return DoctorFinding("failed", error.what, error.remedy)


async def _check_clickhouse(settings: Settings) -> DoctorFinding:
    return await _ping_clickhouse(await clickhouse_endpoint(settings))


async def _ping_clickhouse(endpoint: ClickHouseEndpoint) -> DoctorFinding:
    started = time.perf_counter()
    version = await clickhouse_client.ping(endpoint, seconds=PING_TIMEOUT_SECONDS)
    milliseconds = (time.perf_counter() - started) * 1000
    return DoctorFinding("ok", f"{endpoint}: version {version}, answered in {milliseconds:.0f} ms")


async def _check_tables(settings: Settings) -> DoctorFinding:
    connection = await postgres_connections.connect(await postgres_endpoint(settings))
    try:
        client = await clickhouse_client.connect(await clickhouse_endpoint(settings))
        inconsistencies = await find_inconsistencies(connection, client, orphan_seconds=ORPHAN_SECONDS)
    finally:
        await connection.close()
    if not inconsistencies:
        return DoctorFinding("ok", "I7, I8 hold: every referenced table exists, every other table is dropped")
    first = inconsistencies[0]
    detail = f"{len(inconsistencies)} tables, first {first.invariant}: {first.table} {first.finding}"
    if any(inconsistency.invariant == "I7" for inconsistency in inconsistencies):
        return DoctorFinding(
            "failed",
            detail,
            "The table was dropped outside of aaiclick, or ClickHouse has an older state; see 'aaiclick data ls'.",
        )
    return DoctorFinding("warning", detail, "Run 'aaiclick data gc', or keep 'aaiclick background start' running.")


async def _check_clocks(settings: Settings) -> DoctorFinding:
    connection = await postgres_connections.connect(await postgres_endpoint(settings))
    try:
        database_time: datetime = await connection.fetchval("SELECT clock_timestamp()")
    finally:
        await connection.close()
    seconds = (datetime.now(UTC) - database_time).total_seconds()
    detail = f"this machine and PostgreSQL differ by {seconds:+.3f} s"
    if abs(seconds) > MAX_CLOCK_SKEW_SECONDS:
        return DoctorFinding("warning", detail, "Synchronise both clocks with NTP; leases use PostgreSQL's clock.")
    return DoctorFinding("ok", detail)


async def _check_machine_id(settings: Settings) -> DoctorFinding:
    first, last = settings.machine_ids
    return DoctorFinding("ok", f"leased machine id {extract_machine_id(get_snowflake_id())} of {first} to {last}")


async def _check_logs(settings: Settings) -> DoctorFinding:
    return DoctorFinding("ok", str(get_logs_dir(settings)))


CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "home": (_check_home, ()),
    "postgres": (_check_postgres, ("home",)),
    "schema": (_check_schema, ("postgres",)),
    "clickhouse": (_check_clickhouse, ("home",)),
    "repair": (_repair_all, ("schema", "clickhouse")),
    **{name: (partial(_check_invariant, name), ("schema",)) for name in INVARIANTS},
    "events": (_check_events, ("schema",)),
    "secrets": (_check_secrets, ("schema",)),
    "clocks": (_check_clocks, ("postgres",)),
    "tables": (_check_tables, ("schema", "clickhouse")),
    "machine id": (_check_machine_id, ()),
    "task logs": (_check_logs, ()),
}
"""Checks by name, with the checks that they depend on."""
