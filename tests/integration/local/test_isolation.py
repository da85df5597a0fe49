"""Isolation of the embedded stack from other users of the machine: sockets, queries, process list, files."""

import contextlib
import os
import signal
import socket
import stat
import subprocess

import psutil
import pytest


@pytest.fixture
def stack(shared_stack):
    return shared_stack


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user needs root")


def test_no_secret_is_in_any_command_line_or_environment(stack):
    secrets = stack.home.read_secrets()
    status = stack.status()
    for pid in [status["pid"], *(server["pid"] for server in status["servers"].values())]:
        process = psutil.Process(pid)
        shown = " ".join(process.cmdline()) + str(process.environ())
        for secret in (secrets.postgres_password, secrets.clickhouse_password, secrets.clickhouse_path):
            assert secret not in shown


def test_home_is_readable_by_its_owner_only(stack):
    for entry in (stack.home.path, stack.home.run, stack.home.postgres, stack.home.clickhouse, stack.home.logs):
        assert stat.S_IMODE(entry.stat().st_mode) == 0o700, entry
    assert stat.S_IMODE((stack.home.path / "secrets.json").stat().st_mode) == 0o600


def test_no_secret_is_logged(stack):
    secrets = stack.home.read_secrets()
    logs = "".join(log.read_text(errors="replace") for log in stack.home.logs.iterdir())
    assert secrets.postgres_password not in logs
    assert secrets.clickhouse_password not in logs


async def test_postgres_asks_for_the_password_even_on_its_socket(stack):
    import asyncpg

    endpoint = stack.connection.postgres_endpoint()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(
            host=endpoint.host, port=endpoint.port, user=endpoint.user, password="guess", database=endpoint.database
        )


def test_postgres_listens_on_no_network_address(stack):
    server = psutil.Process(stack.status()["servers"]["postgres"]["pid"])
    assert [c for c in server.net_connections("inet") if c.status == psutil.CONN_LISTEN] == []


def test_clickhouse_listens_on_loopback_alone(stack):
    server = psutil.Process(stack.status()["servers"]["clickhouse"]["pid"])
    assert {c.laddr.ip for c in server.net_connections("inet") if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


@pytest.mark.parametrize("query", ["SELECT 1", "SYSTEM STOP LISTEN HTTP", "SHOW TABLES FROM aaiclick"])
@pytest.mark.parametrize("user", ["default", "aaiclick"])
def test_clickhouse_serves_nothing_outside_its_secret_path(stack, query, user):
    for path in ("", "?user=default", "play", "ping", "replicas_status"):
        with pytest.raises(AssertionError, match="404"):
            stack.clickhouse(query, user=user, password="", path=path)


@pytest.mark.parametrize(
    "query",
    [
        "SYSTEM STOP LISTEN HTTP",
        "SELECT * FROM system.users",
        "CREATE TABLE aaiclick.mine (a Int8) ENGINE = Memory",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "KILL QUERY WHERE 1",
        "SELECT 1",
        "SELECT file('/etc/passwd')",
        "SELECT length(range(1000000))",
    ],
)
def test_the_passwordless_user_may_do_nothing_even_on_the_secret_path(stack, query):
    with pytest.raises(AssertionError, match=r"Not enough privileges|Quota for user|USER_SESSION_LIMIT_EXCEEDED"):
        stack.clickhouse(query, user="default", password="")
    assert stack.clickhouse("SELECT 1") == "1"


def test_a_wrong_password_is_refused_on_the_secret_path(stack):
    with pytest.raises(AssertionError, match="403"):
        stack.clickhouse("SELECT 1", password="guess")


@needs_root
def test_another_user_cannot_reach_the_socket_nor_read_the_secrets(stack):
    program = (
        "import socket, sys\n"
        "for action in (lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[1]), lambda: open(sys.argv[2])):\n"
        "    try: action(); print('reached')\n"
        "    except PermissionError: print('refused')\n"
    )
    socket_path, secrets = stack.home.run / ".s.PGSQL.5432", stack.home.path / "secrets.json"
    result = subprocess.run(
        ["/usr/bin/env", "-S", "python3", "-c", program, str(socket_path), str(secrets)],
        user="nobody", group="nogroup", extra_groups=[], capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    assert result.stdout.split() == ["refused", "refused"], result.stderr


def test_a_process_that_takes_the_port_receives_no_secret(make_stack, tmp_path):
    """The keeper sends nothing to a process that binds ClickHouse's port during a restart; it uses another port."""
    own = make_stack(tmp_path / "home")
    port = own.connection.clickhouse_endpoint().port
    pid = own.status()["servers"]["clickhouse"]["pid"]
    received: list[bytes] = []
    os.kill(pid, signal.SIGKILL)
    with socket.socket() as other_process:
        other_process.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while other_process.getsockname()[1] != port:
            with contextlib.suppress(OSError):
                other_process.bind(("127.0.0.1", port))
        other_process.listen()
        other_process.settimeout(0.05)
        while own.status()["servers"]["clickhouse"]["pid"] in (None, pid):
            with contextlib.suppress(TimeoutError):
                received.append(other_process.accept()[0].recv(4096))
        while own.status()["servers"]["clickhouse"]["state"] != "running":
            with contextlib.suppress(TimeoutError):
                received.append(other_process.accept()[0].recv(4096))
    secrets = own.home.read_secrets()
    assert not any(secrets.clickhouse_path.encode() in message for message in received)
    again = make_stack(tmp_path / "home")
    assert again.connection.clickhouse_endpoint().port != port
    assert again.clickhouse("SELECT 1") == "1"
