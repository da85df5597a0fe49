"""`up`, `down`, `status`, `doctor`: the stack from a terminal, kill -9 included."""

import asyncio
import json
import os
import signal
from pathlib import Path

from aaiclick.local.home import Home
from tests.integration.local.conftest import Stack
from tests.integration.local.test_healing import rows_of, write_rows


def states(result) -> dict[str, str]:
    return {line["name"]: line["state"] for line in json.loads(result.stdout)}


def checks(result) -> dict[str, str]:
    return {line["check"]: line["state"] for line in json.loads(result.stdout)}


def pid_of(aaiclick, name: str) -> int:
    return next(line["pid"] for line in json.loads(aaiclick("status", "-o", "json").stdout) if line["name"] == name)


def read_until(stream, words: str) -> str:
    said = ""
    for line in stream:
        said += line
        if words in line:
            return said
    raise AssertionError(f"never said {words!r}: {said}")


def test_up_in_the_foreground_until_it_is_told_to_stop(aaiclick):
    process = aaiclick.start("up")
    said = read_until(process.stderr, "Ctrl-C stops it.")
    assert "aaiclick is up" in said
    assert "PostgreSQL database 'aaiclick'" in said
    assert "ClickHouse database 'aaiclick'" in said
    assert set(states(aaiclick("status", "-o", "json")).values()) == {"running"}
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert states(aaiclick("status", "-o", "json")) == {"up": "stopped", "postgres": "stopped", "clickhouse": "stopped"}


def test_doctor_makes_the_schema_and_is_content_up_goes_on_in_the_background_until_down(aaiclick, started):
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


def test_down_tells_of_whoever_still_uses_the_stack(aaiclick, started):
    started("up", "--detach")
    stack = Stack(Home(Path(aaiclick.environment["AAICLICK_HOME"])))
    asyncio.run(write_rows(stack, 1))
    told = aaiclick("down").stderr
    stack.lease.close()
    assert told.startswith(f"Stopped.\nPrograms that use it, such as workers, still run: {os.getpid()}.")


def test_status_starts_nothing(aaiclick, tmp_path):
    assert states(aaiclick("status", "-o", "json"))["postgres"] == "stopped"
    assert not (tmp_path / "home").exists()


def test_a_killed_up_is_healed_by_the_next(aaiclick):
    aaiclick("up", "--detach")
    stack = Stack(Home(Path(aaiclick.environment["AAICLICK_HOME"])))
    asyncio.run(write_rows(stack, 20))
    stack.lease.close()
    os.kill(pid_of(aaiclick, "up"), signal.SIGKILL)
    again = aaiclick("up", "--detach")
    assert "aaiclick is up" in again.stderr
    assert "already" not in again.stderr
    assert aaiclick("doctor").returncode == 0
    after = Stack(stack.home)
    assert asyncio.run(rows_of(after)) == (20, 20)
    after.lease.close()


def test_doctor_finds_a_schema_that_is_behind(aaiclick, aaiclick_stack):
    aaiclick_stack.run(aaiclick_stack.sql("CREATE DATABASE behind"))
    try:
        url = {"AAICLICK_DATABASE_URL": aaiclick_stack.lease.postgres().with_database("behind").dsn}
        result = aaiclick("doctor", "-o", "json", **url)
        found = {line["check"]: line for line in json.loads(result.stdout)}
        assert found["schema"]["state"] == "failed"
        assert "aaiclick migrate" in found["schema"]["remedy"]
        assert found["I1"]["state"] == "skipped"
        assert result.returncode == 1
        assert aaiclick("jobs", "ls", **url).returncode == 1
        assert aaiclick("migrate", **url).returncode == 0
        assert aaiclick("doctor", **url).returncode == 0
    finally:
        aaiclick_stack.run(aaiclick_stack.sql("DROP DATABASE behind WITH (FORCE)"))


def test_piped_output_is_plain(aaiclick):
    lines = aaiclick("status").stdout.splitlines()
    assert lines[0] == "name\tstate\tpid\twhere"
    assert lines[2].split("\t")[:2] == ["postgres", "stopped"]


def test_doctor_finds_a_broken_invariant(aaiclick, aaiclick_postgres, aaiclick_stack):
    import asyncpg

    async def spoil() -> None:
        connection = await asyncpg.connect(aaiclick_postgres.dsn)
        await connection.execute(
            "INSERT INTO jobs (id, org_id, name, total_tasks, open_tasks) SELECT 1, id, 'lost', 3, 3 FROM orgs"
        )
        await connection.close()

    aaiclick_stack.run(spoil())
    result = aaiclick("doctor", "-o", "json", AAICLICK_DATABASE_URL=aaiclick_postgres.dsn)
    found = {line["check"]: line for line in json.loads(result.stdout)}
    assert [name for name, line in found.items() if line["state"] == "failed"] == ["I6"]
    assert found["I6"]["detail"].startswith("1 violations of 'counters equal a recount")
    assert "job 1: counts 3/3/0/0, counted 0/0/0/0" in found["I6"]["detail"]
    assert "aaiclick jobs cancel" in found["I6"]["remedy"]
    assert result.returncode == 1
