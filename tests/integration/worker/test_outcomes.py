"""What tasks do and what comes of it, in a real worker."""

import asyncio
import json
import re
import signal
import socket

import pytest

from aaiclick.data.client import connect as clickhouse
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.settings import get_settings
from aaiclick.store import org_secrets, orgs
from aaiclick.store.engine import connect
from aaiclick.store.orgs import create_org
from aaiclick.store.secret_keys import new_key
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import ServerTarget
from tests.integration.transports import AFTER_THE_CLAIM, ONE_ORGANISATION, directly


async def test_asynchronous_and_ordinary_functions_run(bench):
    ids = [*await bench.enqueue_many(50, "nothing"), *await bench.enqueue_many(50, "nothing_sync")]
    bench.drain()
    rows = await bench.rows("SELECT status, attempt, failures, result FROM tasks WHERE id = ANY ($1)", ids)
    assert {tuple(row) for row in rows} == {("COMPLETED", 1, 0, None)}


async def test_a_value_becomes_an_object_that_outlives_the_worker(bench, aaiclick_clickhouse):
    from aaiclick.data import DataContext, open_reference

    task_id = await bench.enqueue("echo", json.dumps({"word": [1, 2, 3]}))
    named = await bench.enqueue("keep")
    bench.drain()
    row = await bench.task(named)
    assert row["status"] == "COMPLETED", row["error"]
    kept = await bench.rows("SELECT table_name FROM table_references WHERE owner = 'NAME'")
    assert [row["table_name"] for row in kept] == ["named_kept"]
    result = json.loads((await bench.task(task_id))["result"])
    assert set(result) == {"object_type", "table_id"}
    async with DataContext(aaiclick_clickhouse):
        assert await (await open_reference(result)).data() == [1, 2, 3]


async def test_a_failure_is_retried_then_dead(bench):
    policy = json.dumps({"base_seconds": 0.01})
    task_id = await bench.enqueue("fail", max_attempts=3, retry_policy=policy)
    bench.start()
    row = await bench.until(task_id, lambda row: row["status"] == "DEAD_LETTER")
    assert (row["attempt"], row["failures"]) == (3, 3)
    assert "ValueError: no luck" in row["error"]
    assert re.match(r'Traceback .*\n  File ".*users_tasks\.py"', row["error"])
    assert row["error_fingerprint"].startswith("ValueError:")
    history = await bench.rows("SELECT attempt, charged, outcome FROM task_attempts ORDER BY attempt")
    assert [tuple(line) for line in history] == [(n, True, "FAILED") for n in (1, 2, 3)]


async def test_code_that_is_not_there_or_not_allowed_fails_at_once(bench):
    said = {
        "no_such_module.work": "cannot be imported",
        "users_tasks.no_such_function": "has no function 'no_such_function'",
        "os.system": "is in no module of your own",
        "test.support.script_helper.make_script": "is in no module of your own",
        "test.support.os_helper.rmtree": "is in no module of your own",
        "_testcapi.run_in_subinterp": "is in no module of your own",
        "users_tasks.time": "is not a function",
        "__main__._exit": "__main__ is a different program in every process",
    }
    ids = await bench.enqueue_many(len(said), "nothing")
    for task_id, name in zip(ids, said, strict=True):
        await bench.rows("UPDATE tasks SET type = $1, entrypoint = $1 WHERE id = $2 RETURNING id", name, task_id)
    bench.drain()
    for task_id, words in zip(ids, said.values(), strict=True):
        row = await bench.task(task_id)
        assert row["status"] == "FAILED"
        assert words in row["error"]
        assert re.search(rf"It ran on {re.escape(socket.gethostname())}, process \d+, in /", row["error"])
        assert "Traceback" not in row["error"]


async def test_a_second_organisation_closes_modules_without_a_name(bench):
    """From the next claim on, in a process that has run the function before."""
    before = await bench.enqueue("nothing")
    bench.start()
    await bench.until(before, lambda row: row["status"] == "COMPLETED")
    [org] = await bench.rows("INSERT INTO orgs (name, slug) VALUES ('second', 'second') RETURNING id")
    ids = [await bench.enqueue("nothing"), *await bench.enqueue_many(1, "nothing", org_id=org["id"])]
    for task_id in ids[:1] if "AAICLICK_SERVER" in bench.environment else ids:
        row = await bench.until(task_id, lambda row: row["status"] == "FAILED")
        assert "'users_tasks.nothing' is in no module that this worker was given" in row["error"]
        assert "--import users_tasks" in row["error"]
    bench.workers[-1].stop()
    named = await bench.enqueue("nothing")
    bench.drain("--import", "users_tasks")
    assert (await bench.task(named))["status"] == "COMPLETED"


@directly(AFTER_THE_CLAIM)
async def test_a_result_that_no_table_can_hold_is_a_failure(bench):
    task_id = await bench.enqueue("strange")
    bench.drain()
    row = await bench.task(task_id)
    assert (row["status"], row["attempt"]) == ("FAILED", 1)
    assert "object" in row["error"]


@directly(AFTER_THE_CLAIM)
async def test_leaving_by_sys_exit_is_a_failure_of_that_task_alone(bench):
    task_id = await bench.enqueue("leave", max_attempts=1)
    others = await bench.enqueue_many(20, "nothing")
    bench.drain()
    assert (await bench.task(task_id))["status"] == "DEAD_LETTER"
    assert {row["status"] for row in await bench.rows("SELECT status FROM tasks WHERE id = ANY ($1)", others)} == {
        "COMPLETED"
    }


async def test_everything_a_task_says_is_in_its_log(bench):
    task_id = await bench.enqueue("speak")
    silent = await bench.enqueue("nothing")
    failing = await bench.enqueue("fail", max_attempts=1)
    bench.drain()
    row = await bench.task(task_id)
    said = (bench.directory / "logs" / f"{task_id}.log").read_text()
    assert row["log_path"] == str(bench.directory / "logs" / f"{task_id}.log")
    assert all(words in said for words in ("to stdout", "to stderr", "to the log"))
    assert not (bench.directory / "logs" / f"{silent}.log").exists()
    assert "ValueError: no luck" in (bench.directory / "logs" / f"{failing}.log").read_text()


async def test_an_error_does_not_carry_secrets_into_the_database_or_the_log(bench, way, aaiclick_clickhouse):
    task_id = await bench.enqueue("blab", max_attempts=1)
    bench.drain()
    said = (await bench.task(task_id))["error"] + (bench.directory / "logs" / f"{task_id}.log").read_text()
    assert "connecting to" in said
    own = way.work.key if isinstance(way.work, ServerTarget) else way.work.password
    for secret in (own, aaiclick_clickhouse.password, aaiclick_clickhouse.path):
        assert secret not in said


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_task_is_given_its_secret_and_its_log_and_error_are_not(bench, way, monkeypatch, isolation):
    key = new_key()
    monkeypatch.setenv("AAICLICK_SECRETS_KEY", key)
    get_settings.cache_clear()
    db = await connect(bench.target)
    org, keys = await orgs.find_org(db, "default"), await org_secrets.keys_for_writing(db)
    await org_secrets.set_secret(db, org, "token", "canary-of-a-task", None, keys)
    await db.close()
    task_id = await bench.enqueue("reveal", json.dumps({"name": "token"}), max_attempts=1)
    own = {} if isinstance(way.work, ServerTarget) else {"AAICLICK_SECRETS_KEY": key}  # a server's worker has no key
    assert bench.start("--drain", "--isolation", isolation, AAICLICK_LOG_FORMAT="json", **own).wait() == 0
    row = await bench.task(task_id)
    assert "raised ******** of 16" in row["error"]
    said = (bench.directory / "logs" / f"{task_id}.log").read_text()
    assert "printed ********" in said
    assert "logged ********" in said
    assert "canary-of-a-task" not in said + str(dict(row))


async def test_very_much_output_is_capped(bench):
    task_id = await bench.enqueue("shout", json.dumps({"megabytes": 50}))
    bench.drain()
    assert (await bench.task(task_id))["status"] == "COMPLETED"
    log = bench.directory / "logs" / f"{task_id}.log"
    assert log.stat().st_size < 11_000_000
    assert "bytes past the limit" in log.read_text()[-200:]


async def test_max_tasks_ends_the_worker(bench):
    await bench.enqueue_many(30, "nothing")
    worker = bench.start("--max-tasks", "10")
    assert worker.wait() == 0
    done = await bench.rows("SELECT 1 FROM tasks WHERE status = 'COMPLETED'")
    assert len(done) == 10, worker.process.stderr.read()


async def test_isolated_tasks_end_alike(bench):
    good, bad = await bench.enqueue("echo", '{"word": 7}'), await bench.enqueue("fail", max_attempts=1)
    bench.drain("--isolation", "process")
    assert (await bench.task(good))["status"] == "COMPLETED"
    assert (await bench.task(bad))["status"] == "DEAD_LETTER"
    assert "ValueError: no luck" in (await bench.task(bad))["error"]


@directly(ONE_ORGANISATION)
async def test_an_object_of_one_organisation_is_not_there_for_another(bench, aaiclick_clickhouse):
    """Each has a database of its own, and a name from elsewhere says nothing."""
    connection = await connect(bench.target)
    one, two = [(await create_org(connection, name=slug, slug=slug))["id"] for slug in ("one", "two")]
    await connection.close()
    [task_id] = await bench.enqueue_many(1, "echo", '{"word": [1, 2]}', org_id=one)
    bench.drain("--import", "users_tasks")
    table = json.loads((await bench.task(task_id))["result"])["table_id"]
    peeks = {}
    for org_id in (one, two, DEFAULT_ORG_ID):
        [peeks[org_id]] = await bench.enqueue_many(
            1, "peek", json.dumps({"table": table}), org_id=org_id, max_attempts=1
        )
    bench.drain("--import", "users_tasks")
    assert (await bench.task(peeks[one]))["status"] == "COMPLETED"
    for other in (two, DEFAULT_ORG_ID):
        row = await bench.task(peeks[other])
        assert row["status"] == "DEAD_LETTER"
        assert "ObjectNotFoundError" in row["error"]
    home = await bench.rows("SELECT org_id FROM table_refcounts WHERE table_name = $1", table)
    assert [row["org_id"] for row in home] == [one]
    client = await clickhouse(aaiclick_clickhouse)
    found = await client.read_text("SELECT database FROM system.tables WHERE name = {t:String}", {"t": table})
    assert found.column(0).to_pylist() == [f"{aaiclick_clickhouse.database}_{one.hex}"]
    await bench.rows("DELETE FROM table_references WHERE table_name = $1 RETURNING 1", table)
    await PgCleanupWorker(postgres=bench.target, clickhouse=aaiclick_clickhouse).run_once()
    assert not (await client.read_text("SELECT 1 FROM system.tables WHERE name = {t:String}", {"t": table})).num_rows
    for org_id in (one, two):
        await client.run(f"DROP DATABASE IF EXISTS `{aaiclick_clickhouse.database}_{org_id.hex}` SYNC")


@directly(AFTER_THE_CLAIM)
async def test_a_task_without_data_does_not_wait_for_a_clickhouse_that_is_silent(bench):
    """It takes connections and never says anything, as behind a firewall that swallows everything."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        plain = await bench.enqueue_many(20, "nothing")
        wants_data = await bench.enqueue("echo", json.dumps({"word": "x"}), max_attempts=1)
        url = f"http://user:password@127.0.0.1:{silent.getsockname()[1]}/nowhere"
        worker = bench.start("--concurrency", "2", AAICLICK_CLICKHOUSE_URL=url)
        for task_id in plain:
            assert (await bench.until(task_id, lambda row: row["completed_at"]))["status"] == "COMPLETED"
        await bench.until(wants_data, lambda row: row["status"] == "RUNNING")
        log = bench.directory / "logs" / f"{wants_data}.log"
        async with asyncio.timeout(100):
            while not (log.exists() and "does not answer" in log.read_text()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        worker.process.send_signal(signal.SIGTERM)  # finish; the second signal: release
        assert worker.stop() == 0
        assert (await bench.task(wants_data))["failures"] == 0
