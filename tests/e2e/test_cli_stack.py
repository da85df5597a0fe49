"""Stack commands: `up`, `down`, `status`, `doctor`, including recovery from SIGKILL."""

import asyncio
import json
import os
import signal
from pathlib import Path

from aaiclick.local.home import Home
from tests.integration.local.conftest import Stack
from tests.integration.local.test_recovery import count_rows, write_rows


def states(result) -> dict[str, str]:
    return {line["name"]: line["state"] for line in json.loads(result.stdout)}


def checks(result) -> dict[str, str]:
    return {line["check"]: line["state"] for line in json.loads(result.stdout)}


def find_pid(aaiclick, name: str) -> int:
    return next(line["pid"] for line in json.loads(aaiclick("status", "-o", "json").stdout) if line["name"] == name)


def read_until(stream, text: str) -> str:
    output = ""
    for line in stream:
        output += line
        if text in line:
            return output
    raise AssertionError(f"{text!r} was not printed: {output}")


def test_up_runs_in_the_foreground_until_sigint(aaiclick):
    process = aaiclick.start("up")
    output = read_until(process.stderr, "Press Ctrl-C to stop.")
    assert "aaiclick is up" in output
    assert "PostgreSQL database 'aaiclick'" in output
    assert "ClickHouse database 'aaiclick'" in output
    assert set(states(aaiclick("status", "-o", "json")).values()) == {"running"}
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert states(aaiclick("status", "-o", "json")) == {"up": "stopped", "postgres": "stopped", "clickhouse": "stopped"}


def test_up_detached_runs_until_down(aaiclick, started):
    alone = aaiclick("doctor", "-o", "json")
    assert set(checks(alone).values()) == {"ok"}, alone.stdout
    first = started("up", "--detach")
    assert first.returncode == 0, first
    assert "aaiclick is up" in first.stderr
    second = aaiclick("up", "--detach")
    assert "already" in second.stderr
    assert second.returncode == 0
    beside = aaiclick("doctor", "-o", "json")
    assert set(checks(beside).values()) == {"ok"}, beside.stdout
    assert beside.returncode == 0
    assert aaiclick("down").stderr == "Stopped.\n"
    assert "Nothing was running." in aaiclick("down").stderr


def test_down_lists_programs_that_use_the_stack(aaiclick, started):
    started("up", "--detach")
    stack = Stack(Home(Path(aaiclick.environment["AAICLICK_HOME"])))
    asyncio.run(write_rows(stack, 1))
    stderr = aaiclick("down").stderr
    stack.connection.close()
    assert stderr.startswith(f"Stopped.\nPrograms that use it, such as workers, are still running: {os.getpid()}.")


def test_status_starts_nothing(aaiclick, tmp_path):
    assert states(aaiclick("status", "-o", "json"))["postgres"] == "stopped"
    assert not (tmp_path / "home").exists()


def test_up_recovers_after_a_killed_up(aaiclick):
    aaiclick("up", "--detach")
    stack = Stack(Home(Path(aaiclick.environment["AAICLICK_HOME"])))
    asyncio.run(write_rows(stack, 20))
    stack.connection.close()
    os.kill(find_pid(aaiclick, "up"), signal.SIGKILL)
    again = aaiclick("up", "--detach")
    assert "aaiclick is up" in again.stderr
    assert "already" not in again.stderr
    assert aaiclick("doctor").returncode == 0
    after = Stack(stack.home)
    assert asyncio.run(count_rows(after)) == (20, 20)
    after.connection.close()


def test_doctor_reports_an_outdated_schema(aaiclick, aaiclick_stack):
    aaiclick_stack.run(aaiclick_stack.run_sql("CREATE DATABASE behind"))
    try:
        url = {"AAICLICK_DATABASE_URL": aaiclick_stack.connection.postgres_endpoint().with_database("behind").dsn}
        result = aaiclick("doctor", "-o", "json", **url)
        results = {line["check"]: line for line in json.loads(result.stdout)}
        assert results["schema"]["state"] == "failed"
        assert "aaiclick migrate" in results["schema"]["remedy"]
        assert results["I1"]["state"] == "skipped"
        assert result.returncode == 1
        assert aaiclick("jobs", "ls", **url).returncode == 1
        assert aaiclick("migrate", **url).returncode == 0
        assert aaiclick("doctor", **url).returncode == 0
    finally:
        aaiclick_stack.run(aaiclick_stack.run_sql("DROP DATABASE behind WITH (FORCE)"))


def test_piped_output_is_tab_separated(aaiclick):
    lines = aaiclick("status").stdout.splitlines()
    assert lines[0] == "name\tstate\tpid\twhere"
    assert lines[2].split("\t")[:2] == ["postgres", "stopped"]


def test_doctor_reports_a_violated_invariant(aaiclick, aaiclick_postgres, aaiclick_stack):
    import asyncpg

    async def break_counters() -> None:
        connection = await asyncpg.connect(aaiclick_postgres.dsn)
        await connection.execute(
            "INSERT INTO jobs (id, org_id, name, total_tasks, open_tasks) SELECT 1, id, 'lost', 3, 3 FROM orgs"
        )
        await connection.close()

    aaiclick_stack.run(break_counters())
    result = aaiclick("doctor", "-o", "json", AAICLICK_DATABASE_URL=aaiclick_postgres.dsn)
    results = {line["check"]: line for line in json.loads(result.stdout)}
    assert [name for name, line in results.items() if line["state"] == "failed"] == ["I6"]
    assert results["I6"]["detail"].startswith("1 violations of 'counters equal a recount")
    assert "job 1: counts 3/3/0/0, counted 0/0/0/0" in results["I6"]["detail"]
    assert "aaiclick jobs cancel" in results["I6"]["remedy"]
    assert result.returncode == 1
