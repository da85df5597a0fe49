"""Bad input at the command line: one clear message with a remedy, an exit code, never a traceback."""

import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = (["up"], ["up", "--detach"], ["doctor"], ["migrate"])


def test_an_unknown_command(aaiclick, no_traceback):
    no_traceback(aaiclick("upp"), 2, "No such command 'upp'")


def test_a_bad_setting_is_named(aaiclick, no_traceback):
    no_traceback(aaiclick("config", POSTGRES_PORT="x"), 2, "POSTGRES_PORT: input should be a valid integer", "config")


@pytest.mark.parametrize("command", COMMANDS[:2], ids=" ".join)
def test_a_home_that_cannot_be_used(aaiclick, no_traceback, tmp_path, command):
    (tmp_path / "file").touch()
    result = aaiclick(*command, AAICLICK_HOME=str(tmp_path / "file" / "home"))
    no_traceback(result, 2, "cannot be used: Not a directory", "Set AAICLICK_HOME")


@pytest.mark.parametrize("command", ["up", "migrate"])
def test_a_server_that_is_not_there(aaiclick, no_traceback, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = aaiclick(command, AAICLICK_DATABASE_URL=f"postgresql://u:hunter2@127.0.0.1:{port}/d")
    no_traceback(result, 5, f"PostgreSQL at 127.0.0.1:{port} does not answer", "AAICLICK_DATABASE_URL")
    assert "hunter2" not in result.stderr


def test_a_host_that_cannot_be_one(aaiclick, no_traceback):
    result = aaiclick("jobs", "ls", AAICLICK_DATABASE_URL=f"postgresql://u:p@{'a' * 300}/d")
    no_traceback(result, 2, "is no name of a host")


def test_a_host_that_has_no_address(aaiclick, no_traceback):
    no_traceback(aaiclick("migrate", POSTGRES_HOST="nowhere.invalid"), 5, "nowhere.invalid:5432 does not answer")


@pytest.mark.parametrize(
    "command",
    [*COMMANDS, ["down"], ["migrate", "current"], ["background", "start"]],
    ids=" ".join,
)
def test_what_needs_the_databases_is_refused_beside_a_server(aaiclick, no_traceback, tmp_path, command):
    result = aaiclick(*command, AAICLICK_SERVER="http://127.0.0.1:1")
    no_traceback(result, 2, f"'{command[0]}", "needs the databases themselves", "Unset AAICLICK_SERVER")
    assert not (tmp_path / "home").exists()


def test_a_wrong_password(aaiclick, no_traceback, aaiclick_postgres):
    url = f"postgresql://{aaiclick_postgres.user}:hunter2@/{aaiclick_postgres.database}?host={aaiclick_postgres.host}"
    result = aaiclick("migrate", AAICLICK_DATABASE_URL=url)
    no_traceback(result, 4, "refused user 'aaiclick'", "Check user and password")
    assert "hunter2" not in result.stderr


def test_something_else_than_postgres_answers(aaiclick, no_traceback, aaiclick_clickhouse):
    url = f"postgresql://u@127.0.0.1:{aaiclick_clickhouse.port}/d"
    no_traceback(aaiclick("migrate", AAICLICK_DATABASE_URL=url), 5, f"127.0.0.1:{aaiclick_clickhouse.port}")


def test_a_clickhouse_that_is_not_there(aaiclick, aaiclick_postgres):
    result = aaiclick(
        "doctor", AAICLICK_DATABASE_URL=aaiclick_postgres.dsn, AAICLICK_CLICKHOUSE_URL="http://127.0.0.1:1/d"
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stdout + result.stderr
    assert "127.0.0.1:1" in result.stdout


@pytest.mark.parametrize("command", ["up", "status"])
def test_a_clickhouse_that_is_not_there_is_noticed(aaiclick, aaiclick_postgres, command):
    url = "http://u:hunter2@127.0.0.1:1/d"
    result = aaiclick(command, AAICLICK_DATABASE_URL=aaiclick_postgres.dsn, AAICLICK_CLICKHOUSE_URL=url)
    said = result.stdout + result.stderr
    assert "ClickHouse database 'd' at 127.0.0.1:1 (user 'u') does not answer" in said
    assert "hunter2" not in said
    assert result.returncode == (5 if command == "up" else 0)


def test_a_misspelt_variable_is_refused(aaiclick, no_traceback):
    result = aaiclick("status", AAICLICK_DATABSE_URL="x")
    no_traceback(result, 2, "AAICLICK_DATABSE_URL: there is no such setting; did you mean AAICLICK_DATABASE_URL?")


def test_a_password_that_needs_quoting_is_not_shown(aaiclick, no_traceback):
    result = aaiclick("migrate", AAICLICK_DATABASE_URL="postgresql://app:p@ss/w:rd@127.0.0.1/work")
    no_traceback(result, 2, "AAICLICK_DATABASE_URL: there is an '@' behind the host", "%40")
    assert "w:rd" not in result.stderr


def test_a_database_without_rights(aaiclick, no_traceback, aaiclick_stack):
    """On PostgreSQL 15 and later the usual state of a user who does not own the database."""
    for statement in ("CREATE DATABASE foreign_one", "CREATE ROLE weak LOGIN PASSWORD 'hunter2'"):
        aaiclick_stack.run(aaiclick_stack.sql(statement))
    try:
        at = aaiclick_stack.lease.postgres()
        url = f"postgresql://weak:hunter2@/foreign_one?host={at.host}"
        result = aaiclick("migrate", AAICLICK_DATABASE_URL=url)
        no_traceback(result, 1, "User 'weak' may not change the schema", "ALTER DATABASE", "OWNER TO")
        assert "CREATE TABLE" not in result.stderr
        assert "hunter2" not in result.stderr
    finally:
        for statement in ("DROP DATABASE foreign_one WITH (FORCE)", "DROP ROLE weak"):
            aaiclick_stack.run(aaiclick_stack.sql(statement))


def test_a_database_with_tables_of_the_same_names(aaiclick, no_traceback, aaiclick_stack):
    import asyncpg

    aaiclick_stack.run(aaiclick_stack.sql("CREATE DATABASE crowded"))
    try:
        target = aaiclick_stack.lease.postgres().with_database("crowded")

        async def crowd() -> None:
            connection = await asyncpg.connect(target.dsn)
            await connection.execute("CREATE TABLE jobs (id int)")
            await connection.close()

        aaiclick_stack.run(crowd())
        result = aaiclick("migrate", AAICLICK_DATABASE_URL=target.dsn)
        no_traceback(result, 1, "has something of a name that aaiclick needs", "a database of its own")
    finally:
        aaiclick_stack.run(aaiclick_stack.sql("DROP DATABASE crowded WITH (FORCE)"))


def test_a_module_that_no_worker_can_import(aaiclick, no_traceback, aaiclick_postgres, aaiclick_clickhouse):
    result = aaiclick(
        "worker", "start", "--import", "nosuch.module", "--processes", "1",
        AAICLICK_DATABASE_URL=aaiclick_postgres.dsn, AAICLICK_CLICKHOUSE_URL=aaiclick_clickhouse.url,
    )  # fmt: skip
    no_traceback(result, 2, "The module 'nosuch.module' cannot be imported", "Correct --import")


def test_a_worker_does_not_migrate_a_server(aaiclick, no_traceback, aaiclick_stack):
    aaiclick_stack.run(aaiclick_stack.sql("CREATE DATABASE unmigrated"))
    try:
        url = aaiclick_stack.lease.postgres().with_database("unmigrated").dsn
        result = aaiclick("worker", "start", "--drain", AAICLICK_DATABASE_URL=url)
        no_traceback(result, 1, "is at schema revision none", "aaiclick migrate")
    finally:
        aaiclick_stack.run(aaiclick_stack.sql("DROP DATABASE unmigrated WITH (FORCE)"))


def test_an_interrupted_pipe_is_no_error(aaiclick):
    process = aaiclick.start("config")
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()


@pytest.mark.parametrize("output", [">&-", "> /dev/full"])
def test_an_output_that_takes_nothing_is_no_defect_of_ours(output: str, tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m aaiclick config {output}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "Unexpected" not in done.stderr
    assert "Traceback" not in done.stderr
    assert (done.returncode == 0) == (output == ">&-")


def test_a_directory_that_is_gone_is_no_defect_of_ours(tmp_path: Path, aaiclick_env: None) -> None:
    here = tmp_path / "gone"
    here.mkdir()
    command = f"rmdir {shlex.quote(str(here))} && {shlex.quote(sys.executable)} -m aaiclick worker start --drain"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=here, check=False)
    assert done.returncode != 0
    assert "Unexpected" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_downgrade_is_confirmed_at_a_terminal_or_by_an_option(aaiclick, no_traceback, aaiclick_stack):
    aaiclick_stack.run(aaiclick_stack.sql("CREATE DATABASE downgraded"))
    try:
        url = aaiclick_stack.lease.postgres().with_database("downgraded").dsn
        assert aaiclick("migrate", AAICLICK_DATABASE_URL=url).returncode == 0
        result = aaiclick("migrate", "downgrade", "base", AAICLICK_DATABASE_URL=url)
        no_traceback(result, 1, "drops tables and rows", "--yes")
        assert "0001" in aaiclick("migrate", "current", AAICLICK_DATABASE_URL=url).stdout
        assert aaiclick("migrate", "downgrade", "base", "--yes", AAICLICK_DATABASE_URL=url).returncode == 0
        assert "0001" not in aaiclick("migrate", "current", AAICLICK_DATABASE_URL=url).stdout
    finally:
        aaiclick_stack.run(aaiclick_stack.sql("DROP DATABASE downgraded WITH (FORCE)"))
