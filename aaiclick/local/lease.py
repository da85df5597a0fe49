"""How a process uses the embedded stack: it holds a lease, and the keeper does the rest.

One lease per process and home, taken at first use and kept until the process ends. A background thread listens on it:
it learns new addresses, and starts a new keeper should this one be killed, so that long-running processes heal by
themselves. After one that was told to stop it starts none: it waits until somebody does, and then uses the stack again.
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
from aaiclick.local import clickhouse, postgres
from aaiclick.local.home import Home, locked
from aaiclick.targets import ClickHouseTarget, PostgresTarget

START_SECONDS = 90.0
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 45.0
TRIES = 3
HEAL_SECONDS = 0.5
HUNG_UP: dict[str, Any] = {}


class Lease:
    """This process's hold on the stack of one home."""

    def __init__(self, home: Home, linger_seconds: float) -> None:
        self._home = home
        self._linger_seconds = linger_seconds
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._connection: socket.socket | None = None
        self._requests = 0
        self._services: set[str] = set()
        self._endpoints: dict[str, Any] = {}
        self._closed = False

    def require(self, *services: str) -> None:
        """Have these servers running: started side by side where they are not."""
        with self._lock:
            if self._connection is None or not self._endpoints.keys() >= set(services):
                self._services.update(services)
                self._request()

    def postgres(self) -> PostgresTarget:
        at = self._endpoint("postgres")
        password = self._home.secrets().postgres_password
        return PostgresTarget(at["host"], at["port"], postgres.USER, postgres.DATABASE, password)

    def clickhouse(self) -> ClickHouseTarget:
        at = self._endpoint("clickhouse")
        known = self._home.secrets()
        return ClickHouseTarget(
            host=at["host"],
            port=at["port"],
            user=clickhouse.USER,
            database=clickhouse.DATABASE,
            password=known.clickhouse_password,
            path=known.clickhouse_path,
        )

    def close(self) -> None:
        """Give the lease back; the keeper lingers, then stops the servers if nobody else holds one."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                _hang_up(self._connection)
                self._connection = None

    def _endpoint(self, service: str) -> dict[str, Any]:
        self.require(service)
        return self._endpoints[service]

    def _request(self) -> None:
        """Ask for all services we use, over the connection we have or a new one; the lock is held."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._connection is None:
                self._connection = connect(self._home, self._linger_seconds)
                threading.Thread(target=self._listen, args=(self._connection,), daemon=True).start()
            answer = self._answer(self._connection, deadline)
            if "error" in answer:
                raise _rebuild(answer["error"])
            if "endpoints" in answer:
                return
            self._connection = None  # the keeper was just going down: find or start the next one
            if time.monotonic() > deadline:
                raise StackError(
                    f"The keeper of {self._home.path} did not answer within {START_SECONDS:.0f} s.",
                    remedy=f"Its log is {self._home.log_of('keeper')}. 'aaiclick down' stops it.",
                )

    def _answer(self, connection: socket.socket, deadline: float) -> dict[str, Any]:
        """The keeper's answer to our request, or nothing if it hung up or took too long."""
        self._requests += 1
        try:
            services = sorted(self._services)
            request = {"op": "lease", "id": self._requests, "pid": os.getpid(), "services": services}
            connection.sendall(_line(request))
            while (answer := self._answers.get(timeout=max(0.1, deadline - time.monotonic()))) is not HUNG_UP:
                if answer["answer"] == self._requests:
                    return answer
        except (OSError, queue.Empty):
            pass
        return HUNG_UP

    def _listen(self, connection: socket.socket) -> None:
        """Pass on what the keeper says until it hangs up."""
        stopped = False
        with contextlib.suppress(OSError), connection.makefile("rb") as stream:
            for line in stream:
                message = json.loads(line)
                stopped = stopped or message.get("event") == "stopped"
                if "endpoints" in message:
                    self._endpoints = message["endpoints"]
                if "answer" in message:
                    self._answers.put(message)
        _hang_up(connection)
        self._answers.put(HUNG_UP)
        if connection is self._connection:
            self._heal(connection, stopped)

    def _heal(self, lost: socket.socket, stopped: bool) -> None:
        """After a keeper that was killed: start another, for as long as this process lives. After one that was told
        to stop: be there again when somebody else has started one.
        """
        while True:
            with self._lock:
                if self._closed or self._connection not in (lost, None):
                    return
                if self._connection is lost:
                    self._connection = None
                    self._answers = queue.SimpleQueue()
                    if stopped:
                        self._endpoints = {}
                with contextlib.suppress(AaiclickError):
                    if not stopped or _is_there(self._home):
                        self._request()
                        return
            time.sleep(HEAL_SECONDS)


def connect(home: Home, linger_seconds: float) -> socket.socket:
    """A connection to the keeper of `home`, started if there is none. Any number of processes may call at once."""
    home.prepare()
    connection = try_connect(home)
    if connection is not None:
        return connection
    with locked(home.start_lock):
        connection = try_connect(home)
        if connection is not None:
            return connection
        for last in (False,) * (TRIES - 1) + (True,):
            try:
                _start_keeper(home, linger_seconds)
            except StackError:
                if last:
                    raise  # one that is killed while it starts is no reason to give up
            connection = try_connect(home)
            if connection is not None:
                return connection
        raise _no_keeper(home, "did not open its socket")


def try_connect(home: Home) -> socket.socket | None:
    """A connection to a running keeper, or None."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(str(home.keeper_socket))
        connection.settimeout(None)
    except TimeoutError:
        connection.close()
        raise _silent(home) from None
    except OSError:
        connection.close()
        return None
    return connection


def _is_there(home: Home) -> bool:
    """Whether a keeper runs."""
    connection = try_connect(home)
    if connection is not None:
        connection.close()
    return connection is not None


def ask(home: Home, request: dict[str, Any]) -> dict[str, Any] | None:
    """One question to a running keeper and its answer; None if there is no keeper."""
    if not home.is_private():
        return None
    connection = try_connect(home)
    if connection is None:
        return None
    with connection, connection.makefile("rb") as stream:
        try:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(_line(request))
            answer = stream.readline()
        except TimeoutError:
            raise _silent(home) from None
        except OSError:
            return None
    return json.loads(answer) if answer else None


def _silent(home: Home) -> StackError:
    return StackError(
        f"The keeper of {home.path} is there but does not answer.",
        remedy=f"'aaiclick down' ends it. Its log is {home.log_of('keeper')}.",
    )


def end_silent_keeper(home: Home) -> bool:
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
    log_file = home.log_of("keeper")
    with log_file.open("ab") as log:
        position = log.tell()
        starter = subprocess.Popen(
            [sys.executable, "-m", "aaiclick.local.keeper", str(home.path), str(linger_seconds)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    assert starter.stdout is not None  # noqa: S101
    with starter, starter.stdout as said:
        if said.readline() != b"ready\n":
            raise _no_keeper(home, "ended at once: " + postgres.last_words(_tail(home, position)))


def _tail(home: Home, position: int) -> str:
    with home.log_of("keeper").open("rb") as log:
        log.seek(position)
        return log.read(8000).decode(errors="replace")


def _no_keeper(home: Home, what: str) -> StackError:
    return StackError(
        f"The keeper of the embedded servers in {home.path} {what}.", remedy=f"Its log is {home.log_of('keeper')}."
    )


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _rebuild(error: dict[str, str]) -> AaiclickError:
    kind = getattr(errors, error["kind"], StackError)
    return kind(error["what"], remedy=error["remedy"])


_leases: dict[str, Lease] = {}
_leases_lock = threading.Lock()


def lease_of(home: Home, linger_seconds: float) -> Lease:
    """This process's lease on the stack of `home`."""
    with _leases_lock:
        return _leases.setdefault(str(home.path), Lease(home, linger_seconds))


def close_leases() -> None:
    """Give back every lease of this process."""
    with _leases_lock:
        leases = list(_leases.values())
        _leases.clear()
    for lease in leases:
        lease.close()


def _forget_after_fork() -> None:
    global _leases_lock  # a lock that another thread held at the fork would never be released
    _leases_lock = threading.Lock()
    _leases.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
