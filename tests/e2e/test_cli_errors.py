"""Command-line errors: a message with a remedy and an exit code, without a traceback."""

import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aaiclick.store.postgres_connections import connect

COMMANDS = (["up"], ["up", "--detach"], ["doctor"], ["migrate"])


def test_unknown_command_is_reported(aaiclick, no_traceback):
    no_traceback(aaiclick("upp"), 2, "No such command 'upp'")
    no_traceback(aaiclick("job", "ls"), 2, "No such command 'job'. Did you mean 'jobs'?")


def test_invalid_setting_is_reported(aaiclick, no_traceback):
    no_traceback(aaiclick("config", POSTGRES_PORT="x"), 2, "POSTGRES_PORT: input should be a valid integer", "config")


@pytest.mark.parametrize("command", COMMANDS[:2], ids=" ".join)
def test_unusable_home_is_reported(aaiclick, no_traceback, tmp_path, command):
    (tmp_path / "file").touch()
    result = aaiclick(*command, AAICLICK_HOME=str(tmp_path / "file" / "home"))
    no_traceback(result, 2, "cannot be used: Not a directory", "Set AAICLICK_HOME")


@pytest.mark.parametrize("command", ["up", "migrate"])
def test_unreachable_postgres_is_reported(aaiclick, no_traceback, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = aaiclick(command, AAICLICK_DATABASE_URL=f"postgresql://u:hunter2@127.0.0.1:{port}/d")
    no_traceback(result, 5, f"PostgreSQL at 127.0.0.1:{port} does not answer", "AAICLICK_DATABASE_URL")
    assert "hunter2" not in result.stderr


def test_invalid_host_name_is_reported(aaiclick, no_traceback):
    result = aaiclick("jobs", "ls", AAICLICK_DATABASE_URL=f"postgresql://u:p@{'a' * 300}/d")
    no_traceback(result, 2, "is not a valid host name")


def test_unresolvable_host_is_reported(aaiclick, no_traceback):
    no_traceback(aaiclick("migrate", POSTGRES_HOST="nowhere.invalid"), 5, "nowhere.invalid:5432 does not answer")


@pytest.mark.parametrize(
    "command",
    [*COMMANDS, ["down"], ["migrate", "current"], ["background", "start"]],
    ids=" ".join,
)
def test_local_commands_are_refused_with_a_server(aaiclick, no_traceback, tmp_path, command):
    result = aaiclick(*command, AAICLICK_SERVER="http://127.0.0.1:1")
    no_traceback(result, 2, f"'{command[0]}", "needs direct access to the databases", "Unset AAICLICK_SERVER")
    assert not (tmp_path / "home").exists()


def test_wrong_password_is_reported(aaiclick, no_traceback, aaiclick_postgres):
    url = f"postgresql://{aaiclick_postgres.user}:hunter2@/{aaiclick_postgres.database}?host={aaiclick_postgres.host}"
    result = aaiclick("migrate", AAICLICK_DATABASE_URL=url)
    no_traceback(result, 4, "refused user 'aaiclick'", "Check user and password")
    assert "hunter2" not in result.stderr


def test_other_protocol_on_the_postgres_port_is_reported(aaiclick, no_traceback, aaiclick_clickhouse):
    url = f"postgresql://u@127.0.0.1:{aaiclick_clickhouse.port}/d"
    no_traceback(aaiclick("migrate", AAICLICK_DATABASE_URL=url), 5, f"127.0.0.1:{aaiclick_clickhouse.port}")


def test_doctor_reports_unreachable_clickhouse(aaiclick, aaiclick_postgres):
    result = aaiclick(
        "doctor", AAICLICK_DATABASE_URL=aaiclick_postgres.dsn, AAICLICK_CLICKHOUSE_URL="http://127.0.0.1:1/d"
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stdout + result.stderr
    assert "127.0.0.1:1" in result.stdout


@pytest.mark.parametrize("command", ["up", "status"])
def test_up_and_status_report_unreachable_clickhouse(aaiclick, aaiclick_postgres, command):
    url = "http://u:hunter2@127.0.0.1:1/d"
    result = aaiclick(command, AAICLICK_DATABASE_URL=aaiclick_postgres.dsn, AAICLICK_CLICKHOUSE_URL=url)
    printed = result.stdout + result.stderr
    assert "ClickHouse database 'd' at 127.0.0.1:1 (user 'u') does not answer" in printed
    assert "hunter2" not in printed
    assert result.returncode == (5 if command == "up" else 0)


def test_misspelt_variable_is_refused(aaiclick, no_traceback):
    result = aaiclick("status", AAICLICK_DATABSE_URL="x")
    no_traceback(result, 2, "AAICLICK_DATABSE_URL: there is no such setting; did you mean AAICLICK_DATABASE_URL?")


def test_unquoted_password_in_a_url_is_not_shown(aaiclick, no_traceback):
    result = aaiclick("migrate", AAICLICK_DATABASE_URL="postgresql://app:p@ss/w:rd@127.0.0.1/work")
    no_traceback(result, 2, "AAICLICK_DATABASE_URL: there is an '@' behind the host", "%40")
    assert "w:rd" not in result.stderr


def test_missing_database_privileges_are_reported(aaiclick, no_traceback, aaiclick_stack):
    """The default on PostgreSQL 15 and later for a user that does not own the database."""
    for statement in ("CREATE DATABASE foreign_one", "CREATE ROLE weak LOGIN PASSWORD 'hunter2'"):
        aaiclick_stack.run(aaiclick_stack.run_sql(statement))
    try:
        at = aaiclick_stack.connection.postgres_endpoint()
        url = f"postgresql://weak:hunter2@/foreign_one?host={at.host}"
        result = aaiclick("migrate", AAICLICK_DATABASE_URL=url)
        no_traceback(result, 1, "User 'weak' may not change the schema", "ALTER DATABASE", "OWNER TO")
        assert "CREATE TABLE" not in result.stderr
        assert "hunter2" not in result.stderr
    finally:
        for statement in ("DROP DATABASE foreign_one WITH (FORCE)", "DROP ROLE weak"):
            aaiclick_stack.run(aaiclick_stack.run_sql(statement))


def test_foreign_tables_in_the_database_are_reported(aaiclick, no_traceback, aaiclick_stack):
    import asyncpg

    aaiclick_stack.run(aaiclick_stack.run_sql("CREATE DATABASE crowded"))
    try:
        endpoint = aaiclick_stack.connection.postgres_endpoint().with_database("crowded")

        async def crowd() -> None:
            connection = await asyncpg.connect(endpoint.dsn)
            await connection.execute("CREATE TABLE jobs (id int)")
            await connection.close()

        aaiclick_stack.run(crowd())
        result = aaiclick("migrate", "--yes", AAICLICK_DATABASE_URL=endpoint.dsn)
        no_traceback(result, 1, "has other objects with names that aaiclick needs", "needs its own database")
    finally:
        aaiclick_stack.run(aaiclick_stack.run_sql("DROP DATABASE crowded WITH (FORCE)"))


def test_unimportable_module_of_a_worker_is_reported(aaiclick, no_traceback, aaiclick_postgres, aaiclick_clickhouse):
    result = aaiclick(
        "worker", "start", "--import", "nosuch.module", "--processes", "1",
        AAICLICK_DATABASE_URL=aaiclick_postgres.dsn, AAICLICK_CLICKHOUSE_URL=aaiclick_clickhouse.url,
    )  # fmt: skip
    no_traceback(result, 2, "The module 'nosuch.module' cannot be imported", "Correct --import")


def test_worker_does_not_migrate_an_external_database(aaiclick, no_traceback, aaiclick_stack):
    aaiclick_stack.run(aaiclick_stack.run_sql("CREATE DATABASE unmigrated"))
    try:
        url = aaiclick_stack.connection.postgres_endpoint().with_database("unmigrated").dsn
        result = aaiclick("worker", "start", "--drain", AAICLICK_DATABASE_URL=url)
        no_traceback(result, 1, "is at schema revision none", "aaiclick migrate")
    finally:
        aaiclick_stack.run(aaiclick_stack.run_sql("DROP DATABASE unmigrated WITH (FORCE)"))


def test_broken_pipe_is_no_error(aaiclick):
    process = aaiclick.start("config")
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()


@pytest.mark.parametrize("output", [">&-", "> /dev/full"])
def test_unwritable_output_is_not_reported_as_a_bug(output: str, tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m aaiclick config {output}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "Unexpected" not in done.stderr
    assert "Traceback" not in done.stderr
    assert (done.returncode == 0) == (output == ">&-")


def test_deleted_working_directory_is_not_reported_as_a_bug(tmp_path: Path, aaiclick_env: None) -> None:
    here = tmp_path / "gone"
    here.mkdir()
    command = f"rmdir {shlex.quote(str(here))} && {shlex.quote(sys.executable)} -m aaiclick worker start --drain"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=here, check=False)
    assert done.returncode != 0
    assert "Unexpected" not in done.stderr
    assert "Traceback" not in done.stderr


async def _execute(endpoint, statement):
    connection = await connect(endpoint)
    await connection.execute(statement)
    await connection.close()


def test_foreign_databases_and_downgrades_require_confirmation(aaiclick, no_traceback, aaiclick_stack):
    aaiclick_stack.run(aaiclick_stack.run_sql("CREATE DATABASE downgraded"))
    try:
        endpoint = aaiclick_stack.connection.postgres_endpoint().with_database("downgraded")
        url = endpoint.dsn
        aaiclick_stack.run(_execute(endpoint, "CREATE TABLE shop_orders (id integer)"))
        no_traceback(aaiclick("migrate", AAICLICK_DATABASE_URL=url), 1, "another application: shop_orders", "--yes")
        no_traceback(
            aaiclick("up", AAICLICK_DATABASE_URL=url), 1, "another application: shop_orders", "aaiclick migrate"
        )
        assert aaiclick("migrate", "--yes", AAICLICK_DATABASE_URL=url).returncode == 0
        result = aaiclick("migrate", "downgrade", "base", AAICLICK_DATABASE_URL=url)
        no_traceback(result, 1, "permanently deletes tables and rows", "--yes")
        assert "0001" in aaiclick("migrate", "current", AAICLICK_DATABASE_URL=url).stdout
        assert aaiclick("migrate", "downgrade", "base", "--yes", AAICLICK_DATABASE_URL=url).returncode == 0
        assert "0001" not in aaiclick("migrate", "current", AAICLICK_DATABASE_URL=url).stdout
    finally:
        aaiclick_stack.run(aaiclick_stack.run_sql("DROP DATABASE downgraded WITH (FORCE)"))
