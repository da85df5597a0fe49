"""`aaiclick backup` under mixed load, with killed workers, and `aaiclick restore` to new servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
from click.testing import CliRunner

from aaiclick.backup.consistent_snapshot import open_snapshot
from aaiclick.catalog.deploy import deploy
from aaiclick.chaos.environment import UNFINISHED
from aaiclick.cli.main import cli
from aaiclick.data import DataContext, create_object_from_value, open_reference
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import AaiclickError, ConflictError, NotFoundError
from aaiclick.local import close_stack_connections, find_both, stop_stack
from aaiclick.orchestration import OrchContext, PermanentError, create_job, create_task, get_job
from aaiclick.orchestration.task_context import current_scope
from aaiclick.settings import get_settings
from aaiclick.store.catalog import dag_sources
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.fork_server import FORK_SERVER
from tests.integration.catalog.conftest import Shop

ROWS = {"shop": ["n", "s"], "price": [2, 3]}
ROUNDS = 6
DAG = f"""
name: sales
jobs:
  - name: sell
    activation: source
    operator: python
    source: {{kind: cron, schedule: "0 6 1 1 *"}}
    outputs: [raw]
    update_strategy: append
    unique_key: [id]
    config: {{function: "{__name__}:sell"}}
  - name: sums
    activation: reactive
    operator: sql
    outputs: [daily]
    config: {{query: "SELECT day, sum(amount) AS total FROM raw GROUP BY day"}}
publish: [daily]
"""
WRITES = ("UPDATE table_refcounts SET dropping_at = now()", "UPDATE dataset_partitions SET rows = 0")


def record_run() -> int:
    """Append this attempt to the history of its worker; return its number."""
    scope = current_scope()
    assert scope is not None
    with Path(os.environ["BACKUP_TEST_HISTORY"]).open("a") as history:
        history.write(json.dumps({"task": scope.lease.task_id, "attempt": scope.lease.attempt}) + "\n")
    return scope.lease.attempt


async def store() -> object:
    """Create a table that is the result, and one that is dropped with the attempt."""
    record_run()
    await create_object_from_value({"n": [1, 2, 3]})
    return await create_object_from_value(ROWS)


async def check(rows: dict[str, list[object]]) -> int:
    record_run()
    assert rows == ROWS
    return len(rows)


async def keep() -> object:
    record_run()
    return await create_object_from_value(ROWS)


def double(number: int) -> int:
    record_run()
    return 2 * number


def fail() -> None:
    record_run()
    raise PermanentError("as expected")


def fail_once() -> str:
    if record_run() == 1:
        raise ValueError("at first")
    return "recovered"


def sell(event: dict[str, Any]) -> list[dict[str, object]]:
    return event["payload"]["rows"]


@dataclass(frozen=True)
class Expected:
    """What a client expects of a job that was acknowledged."""

    status: str
    value: object = None
    row: tuple[str, int] | None = None
    """Day and amount of a sale."""


class LoadClient:
    """Submits one job of each kind per round, and keeps the acknowledged ones."""

    def __init__(self) -> None:
        self.jobs: dict[int, Expected] = {}
        self._rounds = 0

    async def deploy(self) -> None:
        connection = await connect(get_settings().postgres)
        try:
            await deploy(connection, DAG)
        finally:
            await connection.close()

    async def submit(self, rounds: int) -> None:
        """Submit jobs with values, tables, failures and a publication."""
        for number in range(self._rounds, self._rounds + rounds):
            async with OrchContext() as context:
                entries = {
                    "double": (create_task(double, {"number": number}), Expected("COMPLETED", 2 * number)),
                    "check": (create_task(check, {"rows": create_task(store)}), Expected("COMPLETED", len(ROWS))),
                    "keep": (create_task(keep), Expected("COMPLETED", ROWS)),
                    "fail": (create_task(fail), Expected("FAILED")),
                    "fail once": (
                        create_task(fail_once, retry_policy={"base_seconds": 0.05, "cap_seconds": 1}),
                        Expected("COMPLETED", "recovered"),
                    ),
                }
                for name, (entry, expected) in entries.items():
                    self.jobs[(await create_job(name, entry)).id] = expected
                sale = {"id": number, "day": f"2026-11-0{1 + number % 2}", "amount": 10 + number}
                trigger = {"kind": "manual", "payload": {"rows": [sale]}}
                async with context.connection() as connection:
                    job_id, _ = await dag_sources.start_source(connection, DEFAULT_ORG_ID, "sales", "sell", trigger)
                self.jobs[job_id] = Expected("COMPLETED", row=(sale["day"], sale["amount"]))
        self._rounds += rounds

    async def check_results(self, statuses: Mapping[int, str]) -> None:
        """Compare results of completed jobs with the expected values."""
        for job_id, status in statuses.items():
            expected = self.jobs[job_id]
            if status != "COMPLETED" or expected.row is not None:
                continue
            if expected.value == ROWS:
                assert await read_rows(job_id, "keep") == ROWS
            else:
                async with OrchContext():
                    assert await (await get_job(job_id)).result() == expected.value

    async def check_dataset(self, job_ids: Iterable[int]) -> None:
        """Compare the published dataset with the sales of these jobs."""
        totals: Counter[str] = Counter()
        for row in [self.jobs[job_id].row for job_id in job_ids]:
            if row is not None:
                totals[row[0]] += row[1]
        postgres, clickhouse = await asyncio.to_thread(find_both)
        connection = await connect(postgres)
        try:
            rows = await Shop(connection, await connect_clickhouse(clickhouse)).rows("daily", dag="sales")
        finally:
            await connection.close()
        assert rows == sorted(totals.items())


@contextlib.contextmanager
def worker(directory: Path, history: Path):
    """A worker process with short leases; killed with all its processes at the end."""
    environment = dict(os.environ) | {"WORKER_HEARTBEAT_INTERVAL": "0.3", "WORKER_TIMEOUT": "1"}
    environment |= {"AAICLICK_LOG_DIR": str(directory / "logs"), "AAICLICK_TASK_MODULES": __name__}
    environment["BACKUP_TEST_HISTORY"] = str(history)
    started = FORK_SERVER.start(["worker", "start", "--processes", "1", "--concurrency", "4"], environment)
    try:
        yield
    finally:
        process = psutil.Process(started.pid)
        for member in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        started.wait(10)


async def fetch(query: str, *arguments: object):
    connection = await connect((await asyncio.to_thread(find_both))[0])
    try:
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


async def wait_for_completed(count: int) -> set[int]:
    """Wait until a number of jobs has completed; return the ids of all that have."""
    while True:
        completed = {row["id"] for row in await fetch("SELECT id FROM jobs WHERE status = 'COMPLETED'")}
        if len(completed) >= count:
            return completed
        await asyncio.sleep(0.05)


async def wait_until_nothing_is_unfinished() -> None:
    while (await fetch(UNFINISHED))[0][0]:  # noqa: ASYNC110  (there is no notification)
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def hold_publication():
    """A transaction that a backup waits for, and that hinders no other publication."""
    connection = await connect(get_settings().postgres, silent_seconds=180)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE dataset_partitions IN ROW EXCLUSIVE MODE")
        yield transaction
    finally:
        await connection.close()


async def read_rows(job_id: int, name: str):
    """Rows of the result of a task."""
    query = "SELECT result FROM tasks WHERE job_id = $1 AND entrypoint = $2"
    [row] = await fetch(query, job_id, f"{__name__}.{name}")
    async with DataContext():
        return await (await open_reference(json.loads(row["result"]))).data()


def run(*arguments: str):
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False)


@pytest.fixture
def second_home(aaiclick_env, aaiclick_stack, tmp_path, monkeypatch):
    """Returns a function that starts new servers, which read the same place of backups, and sets them as default."""
    home = tmp_path / "second"

    def start(target: str) -> None:
        monkeypatch.delenv("AAICLICK_DATABASE_URL")
        monkeypatch.delenv("AAICLICK_CLICKHOUSE_URL")
        monkeypatch.setenv("AAICLICK_HOME", str(home))
        get_settings.cache_clear()
        find_both()
        name = target.split("'")[1]
        shutil.copytree(aaiclick_stack.home / "clickhouse" / "backups" / name, home / "clickhouse" / "backups" / name)

    yield start
    if home.exists():
        stop_stack()
        close_stack_connections()


async def test_writes_wait_while_the_cut_is_made(aaiclick_env, aaiclick_postgres) -> None:
    other = await connect(aaiclick_postgres, server_settings={"lock_timeout": "100ms"})
    try:
        async with open_snapshot(aaiclick_postgres) as cut:
            for write in WRITES:
                with pytest.raises(asyncpg.LockNotAvailableError):
                    await other.execute(write)
            assert await other.fetch("SELECT FROM jobs") == []
            await cut.release_locks()
            for write in WRITES:
                await other.execute(write)
    finally:
        await other.close()


async def test_cut_waits_for_a_publication_in_progress(aaiclick_env, aaiclick_postgres, monkeypatch) -> None:
    monkeypatch.setattr("aaiclick.backup.consistent_snapshot.GIVE_UP_SECONDS", 0.0)
    other = await connect(aaiclick_postgres)
    try:
        async with other.transaction():
            await other.execute(WRITES[1])
            with pytest.raises(ConflictError, match="were in use"):
                async with open_snapshot(aaiclick_postgres):
                    pass
        async with open_snapshot(aaiclick_postgres):
            pass
    finally:
        await other.close()


@pytest.mark.timeout(180)
async def test_backup_under_mixed_load_agrees_with_the_clients(aaiclick_env, tmp_path, second_home) -> None:
    """A worker is killed and another one started while the backup is written; it is restored to new servers."""
    target = f"File('{uuid.uuid4().hex}')"
    client = LoadClient()
    await client.deploy()
    await client.submit(ROUNDS)
    before, first_history = set(client.jobs), tmp_path / "before.jsonl"
    async with hold_publication() as publication:
        with worker(tmp_path, first_history):
            completed_before = await wait_for_completed(len(before) // 2)
            saving = asyncio.create_task(
                asyncio.to_thread(run, "backup", str(tmp_path / "backup"), "--clickhouse-to", target)
            )
            await client.submit(1)
        assert not saving.done()
        with worker(tmp_path, first_history):
            await publication.commit()
            while not saving.done():
                await client.submit(1)
            assert (await saving).exception is None
    during = set(client.jobs) - before
    completed_after = await wait_for_completed(1)
    await client.submit(1)
    assert (await asyncio.to_thread(run, "restore", str(tmp_path / "backup"))).exception.what.endswith("is not empty.")

    await asyncio.to_thread(second_home, target)
    restored = await asyncio.to_thread(run, "restore", str(tmp_path / "backup"))
    assert (restored.exception, restored.return_value) == (None, 0), (restored.stdout, restored.stderr)
    jobs = {row["id"]: row["status"] for row in await fetch("SELECT id, status FROM jobs")}
    assert before <= jobs.keys() <= before | during
    assert completed_before <= {job_id for job_id, status in jobs.items() if status == "COMPLETED"} <= completed_after
    finished = {row["id"] for row in await fetch("SELECT id FROM tasks WHERE completed_at IS NOT NULL")}
    await client.check_results(jobs)
    for row in await fetch("SELECT job_id FROM tasks WHERE status = 'COMPLETED' AND entrypoint LIKE '%.store'"):
        if (
            jobs[row["job_id"]] == "RUNNING"
        ):  # the results of unfinished jobs are needed; of finished ones, final results
            assert await read_rows(row["job_id"], "store") == ROWS
    second_history = tmp_path / "after.jsonl"
    with worker(tmp_path, second_history):
        await wait_until_nothing_is_unfinished()
    jobs = {row["id"]: row["status"] for row in await fetch("SELECT id, status FROM jobs")}
    assert {job_id: client.jobs[job_id].status for job_id in jobs} == jobs
    await client.check_results(jobs)
    await client.check_dataset(jobs)
    runs = Counter(json.loads(line)["task"] for line in second_history.read_text().splitlines())
    assert not finished & runs.keys()
    assert max(runs.values(), default=0) <= 2  # a flaky task fails once
    checked = await asyncio.to_thread(run, "doctor", "-o", "json")
    assert checked.return_value == 0, checked.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["backup", "FULL", "--clickhouse-to", "File('x')"], AaiclickError, "is not empty"),
        (["backup", "NEW"], AaiclickError, "cannot write into this directory"),
        (["backup", "NEW", "--clickhouse-to", "x; DROP DATABASE y"], AaiclickError, "is not a destination"),
        (["restore", "FULL"], NotFoundError, "contains no complete backup"),
    ],
)
def test_invalid_directory_or_destination_is_refused(aaiclick_env, tmp_path, arguments, error, message) -> None:
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL" / "postgres.dump").write_text("")
    with pytest.raises(error, match=message):
        raise run(*(str(tmp_path / word) if word.isupper() else word for word in arguments)).exception
