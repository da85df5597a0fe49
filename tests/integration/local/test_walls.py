"""Other users of the machine get nothing: no socket, no query, no secret in a process list or a file."""

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
    known = stack.home.secrets()
    status = stack.status()
    for pid in [status["pid"], *(server["pid"] for server in status["servers"].values())]:
        process = psutil.Process(pid)
        shown = " ".join(process.cmdline()) + str(process.environ())
        for secret in (known.postgres_password, known.clickhouse_password, known.clickhouse_path):
            assert secret not in shown


def test_everything_in_the_home_is_the_owners_alone(stack):
    for entry in (stack.home.path, stack.home.run, stack.home.postgres, stack.home.clickhouse, stack.home.logs):
        assert stat.S_IMODE(entry.stat().st_mode) == 0o700, entry
    assert stat.S_IMODE((stack.home.path / "secrets.json").stat().st_mode) == 0o600


def test_no_secret_is_logged(stack):
    known = stack.home.secrets()
    said = "".join(log.read_text(errors="replace") for log in stack.home.logs.iterdir())
    assert known.postgres_password not in said
    assert known.clickhouse_password not in said


async def test_postgres_asks_for_the_password_even_on_its_socket(stack):
    import asyncpg

    at = stack.lease.postgres()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(host=at.host, port=at.port, user=at.user, password="guess", database=at.database)


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
    said = subprocess.run(
        ["/usr/bin/env", "-S", "python3", "-c", program, str(socket_path), str(secrets)],
        user="nobody", group="nogroup", extra_groups=[], capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    assert said.stdout.split() == ["refused", "refused"], said.stderr


def test_a_thief_of_the_port_learns_no_secret(make_stack, tmp_path):
    """Whoever binds ClickHouse's port while it restarts is not spoken to: the keeper moves to another port."""
    own = make_stack(tmp_path / "home")
    port = own.lease.clickhouse().port
    pid = own.status()["servers"]["clickhouse"]["pid"]
    heard: list[bytes] = []
    os.kill(pid, signal.SIGKILL)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while thief.getsockname()[1] != port:
            with contextlib.suppress(OSError):
                thief.bind(("127.0.0.1", port))
        thief.listen()
        thief.settimeout(0.05)
        while own.status()["servers"]["clickhouse"]["pid"] in (None, pid):
            with contextlib.suppress(TimeoutError):
                heard.append(thief.accept()[0].recv(4096))
        while own.status()["servers"]["clickhouse"]["state"] != "running":
            with contextlib.suppress(TimeoutError):
                heard.append(thief.accept()[0].recv(4096))
    known = own.home.secrets()
    assert not any(known.clickhouse_path.encode() in said for said in heard)
    again = make_stack(tmp_path / "home")
    assert again.lease.clickhouse().port != port
    assert again.clickhouse("SELECT 1") == "1"
