"""CLI commands about tables: `aaiclick data`, `background`, `jobs release`, `doctor`."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from datetime import datetime
from uuid import uuid4

import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.data import DataContext, create_object_from_value
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient, connect
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.orchestration import create_job, create_task, run_job_test
from aaiclick.orchestration.pg_lifecycle import PgLifecycleHandler
from aaiclick.orchestration.table_audit import find_inconsistencies
from aaiclick.orchestration.tenant_databases import TenantDatabases
from aaiclick.store.engine.invariants import INVARIANTS
from aaiclick.store.engine.maintenance import REAP_BATCH_SIZE
from tests.fork_server import FORK_SERVER
from tests.integration.lifecycle.conftest import new_table, until


async def run(*arguments: str) -> str:
    """Run a CLI command with the settings of this process."""
    result = await asyncio.to_thread(CliRunner().invoke, cli, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


async def run_json(*arguments: str):
    return json.loads(await run(*arguments, "-o", "json"))


async def give() -> object:
    return await create_object_from_value({"shop": ["n", "s"], "price": [2, 3]})


@pytest.fixture
async def job(servers):
    job = await create_job("gives", create_task(give))
    await asyncio.to_thread(run_job_test, job)
    return job


class Neighbour:
    """Another organisation with a result and a named Object in its database."""

    def __init__(self, servers, client: ClickHouseClient) -> None:
        self.org_id, self.result = uuid4(), new_table()
        self._servers, self.client = servers, client

    @property
    def database(self) -> str:
        return self.client.endpoint.database

    async def settle(self) -> None:
        self.client = await connect(await TenantDatabases(self._servers.clickhouse).ensure_database(self.org_id))
        for table in (self.result, "named_kept"):
            await self.client.run(f"CREATE TABLE {table} (aai_id UInt64) ENGINE = Memory")
        names = {self.result: ("RESULT", 1, ""), f"{self.org_id}.named_kept": ("NAME", 0, "kept")}
        for table, (owner, owner_id, name) in names.items():
            await self._servers.db.execute(
                "INSERT INTO table_refcounts (table_name, org_id) VALUES ($1, $2)", table, self.org_id
            )
            await self._servers.db.execute(
                "INSERT INTO table_references (table_name, owner, owner_id, name) VALUES ($1, $2, $3, $4)",
                table, owner, owner_id, name,
            )  # fmt: skip

    async def leave(self) -> None:
        await self._servers.client.run(f"DROP DATABASE IF EXISTS {self.database} SYNC")


@pytest.fixture
async def neighbour(servers) -> AsyncIterator[Neighbour]:
    neighbour = Neighbour(servers, servers.client)
    await neighbour.settle()
    yield neighbour
    await neighbour.leave()


async def test_empty_lists_print_a_message(servers):
    lists = ("jobs", "queues", "workers", "dlq", "types", "key", "user", "role", "data", "datasets")
    other_commands = (["dlq", "ls", "--group"], ["dag", "versions"])
    for line in (*([name, "ls"] for name in lists), *other_commands):
        shown = await asyncio.to_thread(CliRunner().invoke, cli, line, standalone_mode=False)
        assert shown.exception is None, (line, shown.exception)
        assert (shown.stdout, shown.stderr.count("\n")) == ("", 1), line
        assert shown.stderr != "No results.\n", line
        assert await run_json(*line) == []


async def test_full_task_list_offers_no_next_page(servers, job):
    (task,) = await run_json("tasks", "ls", str(job.id))
    assert await run_json("tasks", "ls", str(job.id), "--after", task["id"]) == []


async def test_objects_are_listed_with_size_and_owners(servers, job, tmp_path):
    async with DataContext(servers.clickhouse):
        await create_object_from_value([1, 2, 3], name="kept")
    named_object, result = sorted(await run_json("data", "ls"), key=lambda line: line["state"] != "named")
    assert (named_object["name"], named_object["state"], named_object["rows"]) == ("kept", "named", 3)
    assert (result["state"], result["rows"], result["references"]) == ("live", 2, 1)
    assert [owner.endswith(f"of job {job.id}") for owner in result["owners"]] == [True]
    assert datetime.fromisoformat(result["created_at"]).tzinfo is not None
    assert result["bytes"] > 0
    assert await run_json("data", "ls", "--job", str(job.id)) == [result]
    assert [line["name"] for line in await run_json("data", "ls", "--named")] == ["kept"]
    shown = await run_json("data", "show", result["table_id"])
    assert shown["columns"] == [{"name": "shop", "type": "String"}, {"name": "price", "type": "Int64"}]
    await run("data", "export", result["table_id"], str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ['"n",2', '"s",3']
    await run("data", "export", "kept", str(tmp_path / "kept"), "--format", "jsonl")
    assert len((tmp_path / "kept").read_text().splitlines()) == 3
    with pytest.raises(NotFoundError, match="There is no Object 'nothing'"):
        await run("data", "show", "nothing")
    assert (result["name"], result["table_id"] in await servers.tables()) == (None, True)


async def make() -> object:
    return await create_object_from_value([1, 2, 3])


async def double(values: object) -> object:
    return await (values * 2).materialize()


async def both(left: object, right: object) -> object:
    return await (left + right).materialize()


async def test_rerun_with_released_inputs_reruns_their_producers(servers):
    first, second = create_task(make), create_task(make)
    left, right = create_task(double, {"values": first}), create_task(double, {"values": second})
    last = create_task(both, {"left": left, "right": right})
    job = await create_job("gives", last)
    await asyncio.to_thread(run_job_test, job)
    await run_json("data", "gc")
    tables = await servers.tables()
    with pytest.raises(ConflictError, match="were released") as refused:
        await run("tasks", "clear", str(last.id))
    cleared_ids = [str(task_id) for task_id in sorted((first.id, second.id, last.id))]
    assert refused.value.remedy.endswith("aaiclick tasks clear " + " ".join(cleared_ids))
    assert (await run_json("jobs", "show", str(job.id)))["status"] == "COMPLETED"
    assert await servers.tables() == tables
    with pytest.raises(ConflictError, match="were released"):
        await run("tasks", "clear", str(first.id))
    await run("tasks", "clear", *cleared_ids)
    tasks = await run_json("tasks", "ls", str(job.id))
    assert {task["status"] for task in tasks} == {"PENDING"}


async def test_released_results_are_dropped_by_the_cleanup(servers, job):
    (table,) = await servers.tables()
    orphan = await servers.create(new_table(4000))
    assert [line["table"] for line in await run_json("data", "gc", "--dry-run")] == [orphan]
    await run("jobs", "release", str(job.id))
    assert {line["table"] for line in await run_json("data", "gc", "--dry-run")} == {orphan, table}
    assert await servers.tables() == {orphan, table}
    assert await run_json("data", "gc") == {"released": 1, "orphans": 1, "lost_names": 0}
    assert await servers.tables() == set()


async def test_doctor_finds_missing_and_unreferenced_tables(servers, job):
    assert await find_inconsistencies(servers.db, servers.client, orphan_seconds=3600) == []
    (result,) = await servers.tables()
    orphan = await servers.create(new_table(4000))
    await servers.client.run(f"DROP TABLE {result} SYNC")
    inconsistencies = await find_inconsistencies(servers.db, servers.client, orphan_seconds=3600)
    assert {(inconsistency.invariant, inconsistency.table) for inconsistency in inconsistencies} == {
        ("I7", result),
        ("I8", orphan),
    }
    checks = {line["check"]: line for line in await run_json("doctor")}
    assert checks["tables"]["state"] == "failed"
    assert result in checks["tables"]["detail"]
    assert {checks[name]["state"] for name in INVARIANTS} == {"ok"}


async def test_objects_are_looked_up_in_their_organisations_database(servers, neighbour):
    assert await find_inconsistencies(servers.db, servers.client, orphan_seconds=3600) == []
    assert await run_json("data", "ls") == []
    assert {line["check"]: line["state"] for line in await run_json("doctor")}["tables"] == "ok"
    orphan = new_table(4000)
    await neighbour.client.run(f"CREATE TABLE {orphan} (aai_id UInt64) ENGINE = Memory")
    for table in (neighbour.result, "named_kept"):
        await neighbour.client.run(f"DROP TABLE {table} SYNC")
    inconsistencies = await find_inconsistencies(servers.db, servers.client, orphan_seconds=3600)
    assert {(inconsistency.invariant, inconsistency.table) for inconsistency in inconsistencies} == {
        ("I7", f"{neighbour.database}.{neighbour.result}"),
        ("I7", f"{neighbour.database}.named_kept"),
        ("I8", f"{neighbour.database}.{orphan}"),
    }
    assert (await run_json("data", "gc"))["lost_names"] == 1
    assert await servers.counts() == {neighbour.result: 1}


async def test_tables_of_an_organisation_without_a_database_are_missing(servers, neighbour):
    await neighbour.leave()
    inconsistencies = await find_inconsistencies(servers.db, servers.client, orphan_seconds=3600)
    assert sorted(inconsistency.invariant for inconsistency in inconsistencies) == ["I7", "I7"]


async def test_doctor_repairs_what_is_safe(servers):
    lease = await servers.attempt()
    await servers.db.execute(
        "UPDATE tasks SET lease_expires_at = now() - interval '1 hour' WHERE id = $1", lease.task_id
    )
    orphan, young = await servers.create(new_table(4000)), await servers.create(new_table(10))
    unused = await servers.create()
    await servers.db.execute("INSERT INTO table_refcounts (table_name) VALUES ($1)", unused)
    checks = {line["check"]: line for line in await run_json("doctor")}
    assert [name for name in INVARIANTS if checks[name]["state"] == "failed"] == ["I1"]
    assert "doctor --repair" in checks["I1"]["remedy"]
    assert "repair" not in checks
    assert await servers.tables() == {orphan, young, unused}
    checks = {line["check"]: line for line in await run_json("doctor", "--repair")}
    assert checks["repair"]["detail"].startswith("1 leases reclaimed, 0 dead workers")
    assert "2 tables dropped" in checks["repair"]["detail"]
    assert {checks[name]["state"] for name in ("repair", *INVARIANTS, "tables")} == {"ok"}
    assert await servers.tables() == {young}


EXPIRED = """
    INSERT INTO tasks (id, type, status, readiness, attempt, lease_token, lease_expires_at, worker_id, claimed_at)
    SELECT n, 'lost', 'RUNNING', NULL, 1, gen_random_uuid(), now() - interval '1 hour', 1, now() - interval '1 hour'
    FROM generate_series(1, $1::bigint) AS n
"""


async def test_doctor_counts_and_repairs_all_findings(servers):
    """More tasks than one pass of the reaper handles."""
    count = REAP_BATCH_SIZE + 1
    await servers.db.execute(EXPIRED, count)
    check = {line["check"]: line for line in await run_json("doctor")}["I1"]
    assert check["detail"].startswith(f"{count:,} violations of 'every unfinished task waits for something")
    assert check["detail"].count("lease ran out 3600 s ago") == 3, "examples"
    checks = {line["check"]: line for line in await run_json("doctor", "--repair")}
    assert checks["repair"]["detail"].startswith(f"{count} leases reclaimed")
    assert checks["I1"]["state"] == "ok"


async def test_name_deleted_by_a_plain_context_is_removed(servers):
    handler = PgLifecycleHandler(servers.postgres)
    await handler.start()
    async with DataContext(servers.clickhouse, lifecycle=handler):
        await create_object_from_value([1], name="kept")
    await handler.stop()
    await servers.client.run("DROP TABLE named_kept SYNC")
    (finding,) = await find_inconsistencies(servers.db, servers.client, orphan_seconds=0)
    assert (finding.invariant, finding.table) == ("I7", "named_kept")
    assert (await run_json("data", "gc"))["lost_names"] == 1
    assert await servers.counts() == {}


@pytest.mark.parametrize("stop", ["SIGTERM", "SIGINT", "command"])
async def test_the_background_process_drops_and_stops(servers, tmp_path, monkeypatch, stop):
    monkeypatch.setenv("AAICLICK_HOME", str(tmp_path / "home"))
    process = FORK_SERVER.start(
        ["background", "start", "--cleanup-seconds", "0.1", "--sweep-seconds", "0.1"],
        dict(os.environ), stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert "Cleanup and sweeper" in await asyncio.to_thread(process.stderr.readline)
        await servers.create(new_table(4000))
        unused = await servers.create()
        await servers.db.execute("INSERT INTO table_refcounts (table_name) VALUES ($1)", unused)

        async def clean() -> bool:
            return await servers.tables() == set()

        await until(clean)
        if stop == "command":
            second = await asyncio.to_thread(FORK_SERVER.run, ["background", "start"], dict(os.environ))
            assert f"Already running (pid {process.pid})" in second.stderr
            stopped = await asyncio.to_thread(FORK_SERVER.run, ["background", "stop"], dict(os.environ))
            assert "Stopped" in stopped.stderr
        else:
            process.send_signal(getattr(signal, stop))
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
