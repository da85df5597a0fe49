"""Connection of a process to the keeper of the embedded stack.

One connection per process and home, opened at first use and kept until the process ends. A background thread reads it:
it receives new addresses, and starts a new keeper if the old one was killed. After a requested stop it starts none and
waits until another process does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from aaiclick import errors
from aaiclick.errors import AaiclickError, StackError
from aaiclick.local import clickhouse_config, postgres_cluster
from aaiclick.local.home import Home, file_lock
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint

START_SECONDS = 90.0
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 45.0
START_ATTEMPTS = 3
RECONNECT_SECONDS = 0.5

Message = dict[str, Any]
"""A request to the keeper, or its response."""

DISCONNECTED: Message = {}


class StackConnection:
    """Connection of this process to the keeper of one home; the keeper runs while any connection is open."""

    def __init__(self, home: Home, linger_seconds: float) -> None:
        self._home = home
        self._linger_seconds = linger_seconds
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._connection: socket.socket | None = None
        self._request_id = 0
        self._services: set[str] = set()
        self._addresses: Message = {}
        self._closed = False

    def require_servers(self, *services: str) -> None:
        """Start those of the servers that do not run, in parallel, and wait until they are ready."""
        with self._lock:
            if self._connection is None or not self._addresses.keys() >= set(services):
                self._services.update(services)
                self._request_servers()

    def postgres_endpoint(self) -> PostgresEndpoint:
        address = self._require_address("postgres")
        password = self._home.read_secrets().postgres_password
        return PostgresEndpoint(
            address["host"], address["port"], postgres_cluster.USER, postgres_cluster.DATABASE, password
        )

    def clickhouse_endpoint(self) -> ClickHouseEndpoint:
        address = self._require_address("clickhouse")
        secrets = self._home.read_secrets()
        return ClickHouseEndpoint(
            host=address["host"],
            port=address["port"],
            user=clickhouse_config.USER,
            database=clickhouse_config.DATABASE,
            password=secrets.clickhouse_password,
            path=secrets.clickhouse_path,
        )

    def close(self) -> None:
        """Close the connection; after the linger time the keeper stops the servers if no other process is connected."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                _disconnect(self._connection)
                self._connection = None

    def _require_address(self, service: str) -> Message:
        self.require_servers(service)
        return self._addresses[service]

    def _request_servers(self) -> None:
        """Request all servers this process uses, over the open connection or a new one; the lock is held."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._connection is None:
                self._connection = connect_keeper(self._home, self._linger_seconds)
                threading.Thread(target=self._receive_messages, args=(self._connection,), daemon=True).start()
            answer = self._send_request(self._connection, deadline)
            if "error" in answer:
                raise _restore_error(answer["error"])
            if "endpoints" in answer:
                return
            self._connection = None  # the keeper was stopping: find or start the next one
            if time.monotonic() > deadline:
                raise StackError(
                    f"The keeper of {self._home.path} did not answer within {START_SECONDS:.0f} s.",
                    remedy=f"Its log is {self._home.log_path('keeper')}. 'aaiclick down' stops it.",
                )

    def _send_request(self, connection: socket.socket, deadline: float) -> Message:
        """Return the keeper's answer, or DISCONNECTED if it closed the connection or took too long."""
        self._request_id += 1
        try:
            services = sorted(self._services)
            request = {"op": "connect", "id": self._request_id, "pid": os.getpid(), "services": services}
            connection.sendall(_encode_message(request))
            while (answer := self._answers.get(timeout=max(0.1, deadline - time.monotonic()))) is not DISCONNECTED:
                if answer["answer"] == self._request_id:
                    return answer
        except (OSError, queue.Empty):
            pass
        return DISCONNECTED

    def _receive_messages(self, connection: socket.socket) -> None:
        """Dispatch messages of the keeper until it closes the connection."""
        stopped = False
        with contextlib.suppress(OSError), connection.makefile("rb") as stream:
            for line in stream:
                message = json.loads(line)
                stopped = stopped or message.get("event") == "stopped"
                if "endpoints" in message:
                    self._addresses = message["endpoints"]
                if "answer" in message:
                    self._answers.put(message)
        _disconnect(connection)
        self._answers.put(DISCONNECTED)
        if connection is self._connection:
            self._reconnect(connection, stopped)

    def _reconnect(self, lost: socket.socket, stopped: bool) -> None:
        """Start a new keeper if the old one was killed; after a requested stop, wait until another process does."""
        while True:
            with self._lock:
                if self._closed or self._connection not in (lost, None):
                    return
                if self._connection is lost:
                    self._connection = None
                    self._answers = queue.SimpleQueue()
                    if stopped:
                        self._addresses = {}
                with contextlib.suppress(AaiclickError):
                    if not stopped or _is_keeper_running(self._home):
                        self._request_servers()
                        return
            time.sleep(RECONNECT_SECONDS)


def connect_keeper(home: Home, linger_seconds: float) -> socket.socket:
    """Connect to the keeper of `home`; start it if none runs. Safe for concurrent calls by many processes."""
    home.prepare()
    connection = try_connect(home)
    if connection is not None:
        return connection
    with file_lock(home.start_lock):
        connection = try_connect(home)
        if connection is not None:
            return connection
        for last in (False,) * (START_ATTEMPTS - 1) + (True,):
            try:
                _start_keeper(home, linger_seconds)
            except StackError:
                if last:
                    raise  # earlier failures are retried: the keeper may have been killed while it started
            connection = try_connect(home)
            if connection is not None:
                return connection
        raise _start_failure(home, "did not open its socket")


def try_connect(home: Home) -> socket.socket | None:
    """Connect to a running keeper; None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(str(home.keeper_socket))
        connection.settimeout(None)
    except TimeoutError:
        connection.close()
        raise _unresponsive_keeper(home) from None
    except OSError:
        connection.close()
        return None
    return connection


def _is_keeper_running(home: Home) -> bool:
    connection = try_connect(home)
    if connection is not None:
        connection.close()
    return connection is not None


def ask_keeper(home: Home, request: Message) -> Message | None:
    """Send one request to a running keeper and return its answer; None if there is no keeper."""
    if not home.owns_sockets():
        return None
    connection = try_connect(home)
    if connection is None:
        return None
    with connection, connection.makefile("rb") as stream:
        try:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(_encode_message(request))
            answer = stream.readline()
        except TimeoutError:
            raise _unresponsive_keeper(home) from None
        except OSError:
            return None
    return json.loads(answer) if answer else None


def _unresponsive_keeper(home: Home) -> StackError:
    return StackError(
        f"The keeper of {home.path} runs but does not answer.",
        remedy=f"'aaiclick down' kills it. Its log is {home.log_path('keeper')}.",
    )


def kill_unresponsive_keeper(home: Home) -> bool:
    """Kill the process that holds the keeper's lock; its servers end with it. False if there is none."""
    try:
        with home.keeper_lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                os.kill(int(file.read()), signal.SIGKILL)
                fcntl.flock(file, fcntl.LOCK_SH)
                return True
    except (OSError, ValueError):
        pass
    return False


def _start_keeper(home: Home, linger_seconds: float) -> None:
    log_file = home.log_path("keeper")
    with log_file.open("ab") as log:
        position = log.tell()
        starter = subprocess.Popen(
            [sys.executable, "-m", "aaiclick.local.stack_keeper", str(home.path), str(linger_seconds)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    assert starter.stdout is not None  # noqa: S101
    with starter, starter.stdout as stdout:
        if stdout.readline() != b"ready\n":
            raise _start_failure(
                home, "ended at once: " + postgres_cluster.find_error_line(_read_log_after(home, position))
            )


def _read_log_after(home: Home, position: int) -> str:
    with home.log_path("keeper").open("rb") as log:
        log.seek(position)
        return log.read(8000).decode(errors="replace")


def _start_failure(home: Home, what: str) -> StackError:
    return StackError(
        f"The keeper of the embedded servers in {home.path} {what}.", remedy=f"Its log is {home.log_path('keeper')}."
    )


def _encode_message(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _disconnect(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _restore_error(error: dict[str, str]) -> AaiclickError:
    error_class = getattr(errors, error["kind"], StackError)
    return error_class(error["what"], remedy=error["remedy"])


_connections: dict[str, StackConnection] = {}
_connections_lock = threading.Lock()


def get_stack_connection(home: Home, linger_seconds: float) -> StackConnection:
    """Return this process's connection to the stack of `home`."""
    with _connections_lock:
        return _connections.setdefault(str(home.path), StackConnection(home, linger_seconds))


def close_stack_connections() -> None:
    """Close all stack connections of this process.

    ```python
    close_stack_connections()
    ```
    """
    with _connections_lock:
        connections = list(_connections.values())
        _connections.clear()
    for connection in connections:
        connection.close()


def _reset_after_fork() -> None:
    global _connections_lock  # a lock that another thread held at the fork would never be released
    _connections_lock = threading.Lock()
    _connections.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
