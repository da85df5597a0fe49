"""`aaiclick doctor`: is everything there, does it answer, and if not, what to do.

It only reads, unless it is told to repair. It then does first what the loops of workers and of `aaiclick background`
do anyway: what ran out is taken back, what is due begins, what nobody needs is dropped. Nothing else is safe to repair
without knowing how it came about.
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
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.data import client as clickhouse_client
from aaiclick.errors import EXIT_FAILED, AaiclickError
from aaiclick.local import clickhouse_target, postgres_target
from aaiclick.orchestration.inventory import disagreements, forget_missing_names
from aaiclick.orchestration.loops import promoter, reaper
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper
from aaiclick.settings import Settings, get_logs_dir, get_settings
from aaiclick.snowflake import extract_machine_id, get_snowflake_id
from aaiclick.store import engine, migrate, org_secrets, outbox
from aaiclick.store.doctor import INVARIANTS, check_invariant
from aaiclick.store.migrations import HEAD
from aaiclick.store.secret_keys import missing_key
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

SHOWN = 3
SMALL_DISK_BYTES = 1_000_000_000
CLOCK_SECONDS = 2.0
ANSWER_SECONDS = 10.0
"""A ClickHouse that takes longer to say its version does not answer."""
ORPHAN_SECONDS = 3600.0 + 2 * 300.0
"""A table that nobody knows should be gone by then: the sweeper's threshold and two of its passes."""


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    state: str
    detail: str
    remedy: str = ""


Check = Callable[[Settings], Awaitable[Finding]]


@click.command()
@click.option("--repair", is_flag=True, help="Mend what is safe to mend first: leases, due tasks, tables, lost names.")
@output_option
def doctor(repair: bool, output: str) -> int:
    """Check the installation and say how to mend it. Exit code 1 if anything failed."""
    if remote.is_remote():
        remote.refuse("'doctor'")
    findings = asyncio.run(_run_all(get_settings(), repair=repair))
    print_records(
        [
            {"check": name, "state": finding.state, "detail": finding.detail, "remedy": finding.remedy}
            for name, finding in findings.items()
        ],
        output,
    )
    failed = [name for name, finding in findings.items() if finding.state == "failed"]
    if failed:
        note(f"Failed: {', '.join(failed)}.")
    return EXIT_FAILED if failed else 0


async def _run_all(settings: Settings, *, repair: bool) -> dict[str, Finding]:
    findings: dict[str, Finding] = {}
    for name, (check, needs) in CHECKS.items():
        if name == "repair" and not repair:
            continue
        missing = [each for each in needs if findings[each].state in ("failed", "skipped")]
        findings[name] = Finding("skipped", f"needs {missing[0]}") if missing else await _guarded(check, settings)
    return findings


def reach(target: PostgresTarget | ClickHouseTarget) -> Finding:
    """Whether a server answers: one check by itself, for `aaiclick status`."""
    check = _reach_postgres if isinstance(target, PostgresTarget) else _reach_clickhouse
    return asyncio.run(_guarded(lambda _: check(target), get_settings()))  # pyright: ignore[reportArgumentType]


async def _guarded(check: Check, settings: Settings) -> Finding:
    try:
        return await check(settings)
    except AaiclickError as error:
        return Finding("failed", error.what, error.remedy)
    except asyncpg.PostgresError as error:
        return Finding(
            "failed", f"PostgreSQL refused: {error}", "Check the rights of the user that aaiclick connects as."
        )


async def _home(settings: Settings) -> Finding:
    if settings.postgres and settings.clickhouse:
        return Finding("ok", f"{settings.home}, not used: both servers are remote")
    await asyncio.gather(*(find(settings) for find in (postgres_target, clickhouse_target)))
    free = shutil.disk_usage(settings.home).free
    detail = f"{settings.home}, {free / 1e9:.1f} GB free"
    if free < SMALL_DISK_BYTES:
        return Finding("warning", detail, "Free some space: both servers stop taking writes on a full disk.")
    return Finding("ok", detail)


async def _postgres(settings: Settings) -> Finding:
    return await _reach_postgres(await postgres_target(settings))


async def _reach_postgres(target: PostgresTarget) -> Finding:
    started = time.perf_counter()
    server = await engine.check_server(target)
    milliseconds = (time.perf_counter() - started) * 1000
    return Finding("ok", f"{target}: {server.description.split(' on ')[0]}, answered in {milliseconds:.0f} ms")


async def _schema(settings: Settings) -> Finding:
    target = await postgres_target(settings)
    if settings.postgres is None:
        await migrate.ensure_current(target)  # as every command does that needs the embedded database
    await migrate.require_current(target)
    return Finding("ok", f"at revision {HEAD}")


async def _repair(settings: Settings) -> Finding:
    postgres, clickhouse = await postgres_target(settings), await clickhouse_target(settings)
    connection = await engine.connect(postgres)
    try:
        reaped = await _reap_all(connection)
        due = await promoter.run_once(connection)
        dropped = await PgCleanupWorker(postgres=postgres, clickhouse=clickhouse).run_once()
        dropped += await TableSweeper(postgres=postgres, clickhouse=clickhouse).run_once()
        names = await forget_missing_names(connection, await clickhouse_client.connect(clickhouse))
    finally:
        await connection.close()
    return Finding(
        "ok",
        f"{reaped['tasks']} leases taken back, {reaped['workers']} dead workers, {sum(due.values())} due tasks begun, "
        f"{dropped} tables dropped, {names} lost names forgotten",
    )


async def _reap_all(connection: Connection) -> Counter[str]:
    """Pass after pass, each of which takes so many, until one finds nothing more."""
    total: Counter[str] = Counter()
    while any((found := await reaper.run_once(connection)).values()):
        total.update(found)
    return total


async def _invariant(name: str, settings: Settings) -> Finding:
    connection = await engine.connect(await postgres_target(settings))
    try:
        checked = await check_invariant(connection, name)
    finally:
        await connection.close()
    says = INVARIANTS[name].says
    if not checked.count:
        return Finding("ok", f"holds: {says}")
    examples = [f"{each.kind} {each.id}: {each.finding}" for each in checked.findings[:SHOWN]]
    more = ["…"] if checked.count > SHOWN else []
    detail = f"{checked.count:,} violations of '{says}': {'; '.join([*examples, *more])}"
    return Finding("failed", detail, INVARIANTS[name].remedy)


async def _events(settings: Settings) -> Finding:
    connection = await engine.connect(await postgres_target(settings))
    try:
        counts = await outbox.count_events_by_status(connection)
        failed = await outbox.list_events(connection, status="Failed", limit=1) if counts["Failed"] else []
    finally:
        await connection.close()
    detail = f"{counts['Pending']:,} wait for the router, {counts['Failed']:,} could not be routed"
    if not failed:
        return Finding("ok", detail)
    error = (failed[0]["last_error"] or "").partition("\n")[0]
    return Finding(
        "failed",
        f"{detail}; the last one is {failed[0]['id']}: {error:.200}",
        "'aaiclick events ls --status Failed' lists them. Mend what the error names, then: aaiclick events retry --all",
    )


async def _secrets(settings: Settings) -> Finding:
    connection = await engine.connect(await postgres_target(settings))
    try:
        missing = await org_secrets.missing_keys(connection, settings)
    finally:
        await connection.close()
    if not missing:
        return Finding("ok", "the keys of all stored secrets are here")
    error = missing_key(missing[0])
    return Finding("failed", error.what, error.remedy)


async def _clickhouse(settings: Settings) -> Finding:
    return await _reach_clickhouse(await clickhouse_target(settings))


async def _reach_clickhouse(target: ClickHouseTarget) -> Finding:
    started = time.perf_counter()
    version = await clickhouse_client.ping(target, seconds=ANSWER_SECONDS)
    milliseconds = (time.perf_counter() - started) * 1000
    return Finding("ok", f"{target}: version {version}, answered in {milliseconds:.0f} ms")


async def _tables(settings: Settings) -> Finding:
    connection = await engine.connect(await postgres_target(settings))
    try:
        client = await clickhouse_client.connect(await clickhouse_target(settings))
        found = await disagreements(connection, client, orphan_seconds=ORPHAN_SECONDS)
    finally:
        await connection.close()
    if not found:
        return Finding("ok", "I7, I8 hold: every table that is needed exists, every other one is dropped")
    first = found[0]
    detail = f"{len(found)} tables, first {first.invariant}: {first.table} {first.finding}"
    if any(each.invariant == "I7" for each in found):
        return Finding("failed", detail, "Somebody else dropped it, or PostgreSQL is newer; 'aaiclick data ls' tells.")
    return Finding("warning", detail, "Run 'aaiclick data gc', or keep 'aaiclick background start' running.")


async def _clocks(settings: Settings) -> Finding:
    connection = await engine.connect(await postgres_target(settings))
    try:
        theirs: datetime = await connection.fetchval("SELECT clock_timestamp()")
    finally:
        await connection.close()
    seconds = (datetime.now(UTC) - theirs).total_seconds()
    detail = f"this machine and PostgreSQL differ by {seconds:+.3f} s"
    if abs(seconds) > CLOCK_SECONDS:
        return Finding("warning", detail, "Run a time service on both; leases go by PostgreSQL's clock.")
    return Finding("ok", detail)


async def _ids(settings: Settings) -> Finding:
    first, last = settings.machine_ids
    return Finding("ok", f"leased machine id {extract_machine_id(get_snowflake_id())} of {first} to {last}")


async def _logs(settings: Settings) -> Finding:
    return Finding("ok", str(get_logs_dir(settings)))


CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "home": (_home, ()),
    "postgres": (_postgres, ("home",)),
    "schema": (_schema, ("postgres",)),
    "clickhouse": (_clickhouse, ("home",)),
    "repair": (_repair, ("schema", "clickhouse")),
    **{name: (partial(_invariant, name), ("schema",)) for name in INVARIANTS},
    "events": (_events, ("schema",)),
    "secrets": (_secrets, ("schema",)),
    "clocks": (_clocks, ("postgres",)),
    "tables": (_tables, ("schema", "clickhouse")),
    "machine id": (_ids, ()),
    "task logs": (_logs, ()),
}
"""Name → (check, what must hold for it to make sense)."""
