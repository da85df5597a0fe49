"""Outcomes of tasks in a real worker."""

import asyncio
import json
import re
import signal
import socket

import pytest

from aaiclick.data.runtime.clickhouse_client import connect as clickhouse
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.server_addresses import ServerEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy import orgs, secrets
from aaiclick.store.tenancy.orgs import create_org
from aaiclick.store.tenancy.secret_encryption import new_key
from tests.integration.gateways import AFTER_CLAIM, ONE_ORGANISATION, postgres_only


async def test_asynchronous_and_ordinary_functions_run(worker_env):
    ids = [*await worker_env.enqueue_many(50, "nothing"), *await worker_env.enqueue_many(50, "nothing_sync")]
    worker_env.drain()
    rows = await worker_env.rows("SELECT status, attempt, failures, result FROM tasks WHERE id = ANY ($1)", ids)
    assert {tuple(row) for row in rows} == {("COMPLETED", 1, 0, None)}


async def test_a_value_becomes_an_object_that_outlives_the_worker(worker_env, aaiclick_clickhouse):
    from aaiclick.data import DataContext, open_reference

    task_id = await worker_env.enqueue("echo", json.dumps({"word": [1, 2, 3]}))
    named = await worker_env.enqueue("keep")
    worker_env.drain()
    row = await worker_env.task(named)
    assert row["status"] == "COMPLETED", row["error"]
    references = await worker_env.rows("SELECT table_name FROM table_references WHERE owner = 'NAME'")
    assert [row["table_name"] for row in references] == ["named_kept"]
    result = json.loads((await worker_env.task(task_id))["result"])
    assert set(result) == {"object_type", "table_id"}
    async with DataContext(aaiclick_clickhouse):
        assert await (await open_reference(result)).data() == [1, 2, 3]


async def test_failure_is_retried_then_a_dead_letter(worker_env):
    policy = json.dumps({"base_seconds": 0.01})
    task_id = await worker_env.enqueue("fail", max_attempts=3, retry_policy=policy)
    worker_env.start()
    row = await worker_env.wait_until(task_id, lambda row: row["status"] == "DEAD_LETTER")
    assert (row["attempt"], row["failures"]) == (3, 3)
    assert "ValueError: no luck" in row["error"]
    assert re.match(r'Traceback .*\n  File ".*users_tasks\.py"', row["error"])
    assert row["error_fingerprint"].startswith("ValueError:")
    history = await worker_env.rows("SELECT attempt, charged, outcome FROM task_attempts ORDER BY attempt")
    assert [tuple(line) for line in history] == [(n, True, "FAILED") for n in (1, 2, 3)]


async def test_missing_or_disallowed_code_fails_at_once(worker_env):
    expected_errors = {
        "no_such_module.work": "cannot be imported",
        "users_tasks.no_such_function": "has no function 'no_such_function'",
        "os.system": "is in no module of your own",
        "test.support.script_helper.make_script": "is in no module of your own",
        "test.support.os_helper.rmtree": "is in no module of your own",
        "_testcapi.run_in_subinterp": "is in no module of your own",
        "users_tasks.time": "is not a function",
        "__main__._exit": "__main__ is a different program in every process",
    }
    ids = await worker_env.enqueue_many(len(expected_errors), "nothing")
    for task_id, name in zip(ids, expected_errors, strict=True):
        await worker_env.rows("UPDATE tasks SET type = $1, entrypoint = $1 WHERE id = $2 RETURNING id", name, task_id)
    worker_env.drain()
    for task_id, expected_error in zip(ids, expected_errors.values(), strict=True):
        row = await worker_env.task(task_id)
        assert row["status"] == "FAILED"
        assert expected_error in row["error"]
        assert re.search(rf"It ran on {re.escape(socket.gethostname())}, process \d+, in /", row["error"])
        assert "Traceback" not in row["error"]


async def test_second_organisation_disallows_unnamed_modules(worker_env):
    """From the next claim on, also in a process that has cached the function."""
    before = await worker_env.enqueue("nothing")
    worker_env.start()
    await worker_env.wait_until(before, lambda row: row["status"] == "COMPLETED")
    [org] = await worker_env.rows("INSERT INTO orgs (name, slug) VALUES ('second', 'second') RETURNING id")
    ids = [await worker_env.enqueue("nothing"), *await worker_env.enqueue_many(1, "nothing", org_id=org["id"])]
    for task_id in ids[:1] if "AAICLICK_SERVER" in worker_env.environment else ids:
        row = await worker_env.wait_until(task_id, lambda row: row["status"] == "FAILED")
        assert "'users_tasks.nothing' is in no module that this worker was given" in row["error"]
        assert "--import users_tasks" in row["error"]
    worker_env.workers[-1].stop()
    named = await worker_env.enqueue("nothing")
    worker_env.drain("--import", "users_tasks")
    assert (await worker_env.task(named))["status"] == "COMPLETED"


@postgres_only(AFTER_CLAIM)
async def test_unstorable_result_is_a_failure(worker_env):
    task_id = await worker_env.enqueue("strange")
    worker_env.drain()
    row = await worker_env.task(task_id)
    assert (row["status"], row["attempt"]) == ("FAILED", 1)
    assert "object" in row["error"]


@postgres_only(AFTER_CLAIM)
async def test_sys_exit_fails_only_that_task(worker_env):
    task_id = await worker_env.enqueue("leave", max_attempts=1, repeatable=True)
    other_ids = await worker_env.enqueue_many(20, "nothing")
    worker_env.drain()
    assert (await worker_env.task(task_id))["status"] == "DEAD_LETTER"
    assert {
        row["status"] for row in await worker_env.rows("SELECT status FROM tasks WHERE id = ANY ($1)", other_ids)
    } == {"COMPLETED"}


async def test_all_output_of_a_task_is_in_its_log(worker_env):
    task_id = await worker_env.enqueue("speak")
    silent = await worker_env.enqueue("nothing")
    failing = await worker_env.enqueue("fail", max_attempts=1, repeatable=True)
    worker_env.drain()
    row = await worker_env.task(task_id)
    log_text = (worker_env.directory / "logs" / f"{task_id}.log").read_text()
    assert row["log_path"] == str(worker_env.directory / "logs" / f"{task_id}.log")
    assert all(line in log_text for line in ("to stdout", "to stderr", "to the log"))
    assert not (worker_env.directory / "logs" / f"{silent}.log").exists()
    assert "ValueError: no luck" in (worker_env.directory / "logs" / f"{failing}.log").read_text()


async def test_secrets_in_errors_are_redacted(worker_env, gateway, aaiclick_clickhouse):
    task_id = await worker_env.enqueue("blab", max_attempts=1, repeatable=True)
    worker_env.drain()
    text = (await worker_env.task(task_id))["error"] + (worker_env.directory / "logs" / f"{task_id}.log").read_text()
    assert "connecting to" in text
    own = gateway.work.key if isinstance(gateway.work, ServerEndpoint) else gateway.work.password
    for secret in (own, aaiclick_clickhouse.password, aaiclick_clickhouse.path):
        assert secret not in text


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_secrets_are_redacted_in_log_and_error(worker_env, gateway, monkeypatch, isolation):
    key = new_key()
    monkeypatch.setenv("AAICLICK_SECRETS_KEY", key)
    get_settings.cache_clear()
    db = await connect(worker_env.endpoint)
    org, keys = await orgs.find_org(db, "default"), await secrets.load_keys_for_writing(db)
    await secrets.set_secret(db, org, "token", "canary-of-a-task", None, keys)
    await db.close()
    task_id = await worker_env.enqueue("reveal", json.dumps({"name": "token"}), max_attempts=1, repeatable=True)
    own = {} if isinstance(gateway.work, ServerEndpoint) else {"AAICLICK_SECRETS_KEY": key}  # HTTP workers have no key
    assert worker_env.start("--drain", "--isolation", isolation, AAICLICK_LOG_FORMAT="json", **own).wait() == 0
    row = await worker_env.task(task_id)
    assert "raised ******** of 16" in row["error"]
    log_text = (worker_env.directory / "logs" / f"{task_id}.log").read_text()
    assert "printed ********" in log_text
    assert "logged ********" in log_text
    assert "canary-of-a-task" not in log_text + str(dict(row))


async def test_large_output_is_capped(worker_env):
    task_id = await worker_env.enqueue("shout", json.dumps({"megabytes": 50}))
    worker_env.drain()
    assert (await worker_env.task(task_id))["status"] == "COMPLETED"
    log = worker_env.directory / "logs" / f"{task_id}.log"
    assert log.stat().st_size < 11_000_000
    assert "bytes past the limit" in log.read_text()[-200:]


async def test_max_tasks_ends_the_worker(worker_env):
    await worker_env.enqueue_many(30, "nothing")
    worker = worker_env.start("--max-tasks", "10")
    assert worker.wait() == 0
    done = await worker_env.rows("SELECT 1 FROM tasks WHERE status = 'COMPLETED'")
    assert len(done) == 10, worker.process.stderr.read()


async def test_isolated_tasks_have_the_same_outcomes(worker_env):
    good, bad = (
        await worker_env.enqueue("echo", '{"word": 7}'),
        await worker_env.enqueue("fail", max_attempts=1, repeatable=True),
    )
    worker_env.drain("--isolation", "process")
    assert (await worker_env.task(good))["status"] == "COMPLETED"
    assert (await worker_env.task(bad))["status"] == "DEAD_LETTER"
    assert "ValueError: no luck" in (await worker_env.task(bad))["error"]


@postgres_only(ONE_ORGANISATION)
@pytest.mark.parametrize("max_literal_bytes", ["-1", "65536"])
async def test_objects_of_other_organisations_are_not_found(worker_env, aaiclick_clickhouse, max_literal_bytes):
    """Each organisation has its own database."""
    connection = await connect(worker_env.endpoint)
    one, two = [(await create_org(connection, name=slug, slug=slug)).id for slug in ("one", "two")]
    await connection.close()
    [task_id] = await worker_env.enqueue_many(1, "echo", '{"word": [1, 2]}', org_id=one)
    worker_env.drain("--import", "users_tasks", AAICLICK_MAX_LITERAL_BYTES=max_literal_bytes)
    table = json.loads((await worker_env.task(task_id))["result"])["table_id"]
    peeks = {}
    for org_id in (one, two, DEFAULT_ORG_ID):
        [peeks[org_id]] = await worker_env.enqueue_many(
            1, "peek", json.dumps({"table": table}), org_id=org_id, max_attempts=1, repeatable=True
        )
    worker_env.drain("--import", "users_tasks")
    assert (await worker_env.task(peeks[one]))["status"] == "COMPLETED"
    for other in (two, DEFAULT_ORG_ID):
        row = await worker_env.task(peeks[other])
        assert row["status"] == "DEAD_LETTER"
        assert "ObjectNotFoundError" in row["error"]
    client = await clickhouse(aaiclick_clickhouse)
    if max_literal_bytes == "-1":
        await check_table_of(worker_env, aaiclick_clickhouse, client, table, one)
    for org_id in (one, two):
        await client.run(f"DROP DATABASE IF EXISTS `{aaiclick_clickhouse.database}_{org_id.hex}` SYNC")


async def check_table_of(worker_env, aaiclick_clickhouse, client, table, org_id) -> None:
    """The table is in the database of its organisation only, and the cleanup drops it there."""
    home = await worker_env.rows("SELECT org_id FROM table_refcounts WHERE table_name = $1", table)
    assert [row["org_id"] for row in home] == [org_id]
    databases = await client.read_text("SELECT database FROM system.tables WHERE name = {t:String}", {"t": table})
    assert databases.column(0).to_pylist() == [f"{aaiclick_clickhouse.database}_{org_id.hex}"]
    await worker_env.rows("DELETE FROM table_references WHERE table_name = $1 RETURNING 1", table)
    await PgCleanupWorker(postgres=worker_env.endpoint, clickhouse=aaiclick_clickhouse).run_once()
    assert not (await client.read_text("SELECT 1 FROM system.tables WHERE name = {t:String}", {"t": table})).num_rows


@postgres_only(AFTER_CLAIM)
async def test_task_without_data_does_not_wait_for_clickhouse(worker_env):
    """A server that accepts connections and never answers, as behind a firewall."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        plain = await worker_env.enqueue_many(20, "nothing")
        wants_data = await worker_env.enqueue("echo", json.dumps({"word": "x"}), max_attempts=1, repeatable=True)
        url = f"http://user:password@127.0.0.1:{silent.getsockname()[1]}/nowhere"
        worker = worker_env.start("--concurrency", "2", AAICLICK_CLICKHOUSE_URL=url, AAICLICK_MAX_LITERAL_BYTES="-1")
        for task_id in plain:
            assert (await worker_env.wait_until(task_id, lambda row: row["completed_at"]))["status"] == "COMPLETED"
        await worker_env.wait_until(wants_data, lambda row: row["status"] == "RUNNING")
        log = worker_env.directory / "logs" / f"{wants_data}.log"
        async with asyncio.timeout(100):
            while not (log.exists() and "does not answer" in log.read_text()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        worker.process.send_signal(signal.SIGTERM)  # the first signal finishes, the second releases
        assert worker.stop() == 0
        assert (await worker_env.task(wants_data))["failures"] == 0
