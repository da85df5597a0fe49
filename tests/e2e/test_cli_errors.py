"""Bad input at the command line: one clear message with a remedy, an exit code, never a traceback."""

import socket

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


def test_a_host_that_has_no_address(aaiclick, no_traceback):
    no_traceback(aaiclick("migrate", POSTGRES_HOST="nowhere.invalid"), 5, "nowhere.invalid:5432 does not answer")


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


def test_an_interrupted_pipe_is_no_error(aaiclick):
    process = aaiclick.start("config")
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()
