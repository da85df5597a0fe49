"""The keeper: one background process per AAICLICK_HOME that owns the embedded servers.

The servers must outlive any one script, but not the last of them. Every process that uses the stack keeps a connection
to the keeper's socket open; the kernel closes it however that process ends. The keeper

- starts a server at the first request for it, and restarts it if it dies (kill -9 included);
- sends changed addresses to all connections;
- stops the servers and itself when there was no connection for `linger` seconds, or on request.

There is at most one keeper per home: it holds `keeper.lock`, which the kernel releases if it is killed. Its servers
then end too (ClickHouse reads the end of its standard input, PostgreSQL gets SIGINT from the kernel). A process that
loses the connection starts the next keeper, which waits for that and restarts the servers.

Protocol: lines of JSON. `{"op": "connect", "id": n, "pid": PID, "services": [...]}` →
`{"answer": n, "endpoints": {...}}` or `{"answer": n, "error": {...}}`; at any time `{"endpoints": {...}}` or
`{"event": "stopped"}`. `{"op": "status"}` → `{"status": {...}}`; `{"op": "stop", "unless_used": bool}` →
`{"event": "stopped"}` or `{"event": "in use"}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from aaiclick.errors import AaiclickError, StackError
from aaiclick.local.home import Home
from aaiclick.local.supervised_server import ClickHouseServer, PostgresServer, SupervisedServer

LOCK_SECONDS = 30.0
FIRST_CONNECTION_SECONDS = 10.0
"""Time for the process that started the keeper to connect, before the keeper counts as idle."""
MAX_LOG_BYTES = 10_000_000


class StackKeeper:
    """Runs the servers of one home while any process is connected."""

    def __init__(self, home: Home, linger_seconds: float, lock: int) -> None:
        self._home = home
        self._lock = lock
        self._linger_seconds = linger_seconds
        self._servers: dict[str, SupervisedServer] = {}
        self._connections: dict[asyncio.StreamWriter, int | None] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self._idle_since = time.monotonic() + FIRST_CONNECTION_SECONDS
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until idle or stopped; the socket is removed first, so that new clients start the next keeper."""
        self._home.keeper_socket.unlink(missing_ok=True)
        listener = await asyncio.start_unix_server(self._handle_connection, self._home.keeper_socket)
        self._home.keeper_socket.chmod(0o600)
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, self._stop.set)
        _report_ready(self._home)
        try:
            await self._wait_until_idle()
        finally:
            if self._owns_home():
                self._home.keeper_socket.unlink(missing_ok=True)
            listener.close()
            await asyncio.gather(*(server.stop() for server in self._servers.values()))
            self._broadcast({"event": "stopped"})
            for writer in list(self._connections):
                writer.close()
            if self._handlers:
                await asyncio.wait(self._handlers, timeout=1)
            if not self._home.run.is_relative_to(self._home.path):
                shutil.rmtree(self._home.run, ignore_errors=True)  # it replaces a directory of the home

    async def _wait_until_idle(self) -> None:
        while not self._stop.is_set() and self._owns_home():
            if not self._connections and time.monotonic() - self._idle_since >= self._linger_seconds:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), timeout=min(0.5, self._linger_seconds + 0.05))

    def _owns_home(self) -> bool:
        """Whether the locked file is still in place: a home that was removed and created again has another keeper."""
        try:
            return os.path.samestat(os.fstat(self._lock), self._home.keeper_lock.stat())
        except OSError:
            return False

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None  # noqa: S101
        self._handlers.add(handler)
        try:
            while line := await reader.readline():
                await self._handle_request(json.loads(line), writer)
        except (ConnectionError, ValueError):
            pass
        finally:
            self._handlers.discard(handler)
            self._connections.pop(writer, None)
            if not self._connections:
                self._idle_since = time.monotonic()
            writer.close()

    async def _handle_request(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if request["op"] == "connect":
            self._connections[writer] = request.get("pid")
            try:
                await asyncio.gather(*(self._get_server(name).wait_until_ready() for name in request["services"]))
            except AaiclickError as error:
                if self._stop.is_set():
                    writer.close()  # the client finds or starts the next keeper
                    return
                details = {"what": error.what, "remedy": error.remedy, "kind": type(error).__name__}
                _send_message(writer, {"answer": request["id"], "error": details})
            else:
                _send_message(writer, {"answer": request["id"], "endpoints": self._collect_addresses()})
        elif request["op"] == "status":
            _send_message(writer, {"status": self._report_status()})
        elif request["op"] == "stop":
            if request.get("unless_used") and self._connections:
                _send_message(writer, {"event": "in use"})
                return
            self._connections[writer] = None
            self._stop.set()

    def _get_server(self, name: str) -> SupervisedServer:
        if name not in self._servers:
            server_classes = {"postgres": PostgresServer, "clickhouse": ClickHouseServer}
            self._servers[name] = server_classes[name](self._home, self._broadcast_addresses, self._owns_home)
        return self._servers[name]

    def _broadcast_addresses(self) -> None:
        self._broadcast({"endpoints": self._collect_addresses()})

    def _collect_addresses(self) -> dict[str, object]:
        return {name: server.address for name, server in self._servers.items() if server.address}

    def _report_status(self) -> dict[str, object]:
        servers = {name: server.report_status() for name, server in self._servers.items()}
        users = sorted(pid for pid in self._connections.values() if pid is not None)
        return {"pid": os.getpid(), "connections": len(self._connections), "users": users, "servers": servers}

    def _broadcast(self, message: dict[str, object]) -> None:
        for writer in self._connections:
            _send_message(writer, message)


def _send_message(writer: asyncio.StreamWriter, message: dict[str, object]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


def _report_ready(home: Home) -> None:
    """Write `ready` to the starter's pipe, then redirect standard output to the log."""
    os.write(1, b"ready\n")
    log = os.open(home.log_path("keeper"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.close(log)


def _acquire_lock(home: Home) -> int:
    """Acquire the keeper's lock; wait for a previous keeper that is stopping."""
    handle = os.open(home.keeper_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise StackError(
                    f"Another keeper of {home.path} holds {home.keeper_lock} and does not answer.",
                    remedy=f"End it: fuser -k '{home.keeper_lock}'",
                ) from None
            time.sleep(0.02)
        else:
            os.truncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            return handle


def _rotate_logs(home: Home) -> None:
    for name in ("keeper", "postgres", "clickhouse"):
        log = home.log_path(name)
        if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))


def main(arguments: list[str]) -> int:
    """`python -m aaiclick.local.stack_keeper HOME LINGER`: detach, take the lock, serve."""
    if os.fork():
        os._exit(0)
    home = Home(Path(arguments[0]))
    try:
        handle = _acquire_lock(home)
        home.prepare_run()  # a previous keeper that was stopping removes it if it lies outside the home
        _rotate_logs(home)
        asyncio.run(StackKeeper(home, float(arguments[1]), handle).run())
        os.close(handle)
    except AaiclickError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
