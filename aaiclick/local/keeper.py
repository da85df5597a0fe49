"""The keeper: one background process per AAICLICK_HOME that owns the embedded servers.

Servers need an owner that outlives any one script, yet not the last of them. Every process that uses the stack holds
a *lease*: an open connection to the keeper's socket, which the kernel closes however that process ends. The keeper

- starts a server when a lease first asks for it, and starts it again if it dies (kill -9 included);
- tells all leases when an address changed;
- stops the servers and itself when nobody has held a lease for `linger` seconds, or when told to.

There is at most one keeper per home: it holds `keeper.lock`, which the kernel releases if it is killed. Its servers
then end too (ClickHouse sees the end of its standard input, PostgreSQL gets SIGINT from the kernel), and the next
keeper, started by whoever needs the stack, waits for that and starts them anew. A lease that loses its keeper starts
one by itself.

Protocol: lines of JSON. `{"op": "lease", "id": n, "pid": whose, "services": [...]}` →
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
from aaiclick.local.servers import ClickHouseServer, PostgresServer, Server

LOCK_SECONDS = 30.0
FIRST_LEASE_SECONDS = 10.0
"""Time for whoever started the keeper to take the first lease, before it counts as unused."""
LOG_BYTES_KEPT = 10_000_000


class Keeper:
    """Owns the servers of one home for as long as somebody holds a lease."""

    def __init__(self, home: Home, linger_seconds: float, lock: int) -> None:
        self._home = home
        self._lock = lock
        self._linger_seconds = linger_seconds
        self._servers: dict[str, Server] = {}
        self._leases: dict[asyncio.StreamWriter, int | None] = {}
        self._conversations: set[asyncio.Task[None]] = set()
        self._idle_since = time.monotonic() + FIRST_LEASE_SECONDS
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until idle or told to stop; the socket goes first, so that late comers look for a new keeper."""
        self._home.keeper_socket.unlink(missing_ok=True)
        listener = await asyncio.start_unix_server(self._serve, self._home.keeper_socket)
        self._home.keeper_socket.chmod(0o600)
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, self._stop.set)
        _announce(self._home)
        try:
            await self._until_unused()
        finally:
            if self._is_ours():
                self._home.keeper_socket.unlink(missing_ok=True)
            listener.close()
            await asyncio.gather(*(server.stop() for server in self._servers.values()))
            self._tell_leases({"event": "stopped"})
            for writer in list(self._leases):
                writer.close()
            if self._conversations:
                await asyncio.wait(self._conversations, timeout=1)
            if not self._home.run.is_relative_to(self._home.path):
                shutil.rmtree(self._home.run, ignore_errors=True)  # it stands in for a directory of the home

    async def _until_unused(self) -> None:
        while not self._stop.is_set() and self._is_ours():
            if not self._leases and time.monotonic() - self._idle_since >= self._linger_seconds:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), timeout=min(0.5, self._linger_seconds + 0.05))

    def _is_ours(self) -> bool:
        """Whether the home is still the one we locked: if it was removed, what is there now has another keeper."""
        try:
            return os.path.samestat(os.fstat(self._lock), self._home.keeper_lock.stat())
        except OSError:
            return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.current_task()
        assert conversation is not None  # noqa: S101
        self._conversations.add(conversation)
        try:
            while line := await reader.readline():
                await self._answer(json.loads(line), writer)
        except (ConnectionError, ValueError):
            pass
        finally:
            self._conversations.discard(conversation)
            self._leases.pop(writer, None)
            if not self._leases:
                self._idle_since = time.monotonic()
            writer.close()

    async def _answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if request["op"] == "lease":
            self._leases[writer] = request.get("pid")
            try:
                await asyncio.gather(*(self._server(name).ready() for name in request["services"]))
            except AaiclickError as error:
                if self._stop.is_set():
                    writer.close()  # not the client's trouble: it finds or starts the next keeper
                    return
                said = {"what": error.what, "remedy": error.remedy, "kind": type(error).__name__}
                _send(writer, {"answer": request["id"], "error": said})
            else:
                _send(writer, {"answer": request["id"], "endpoints": self._endpoints()})
        elif request["op"] == "status":
            _send(writer, {"status": self._status()})
        elif request["op"] == "stop":
            if request.get("unless_used") and self._leases:
                _send(writer, {"event": "in use"})
                return
            self._leases[writer] = None
            self._stop.set()

    def _server(self, name: str) -> Server:
        if name not in self._servers:
            kinds = {"postgres": PostgresServer, "clickhouse": ClickHouseServer}
            self._servers[name] = kinds[name](self._home, self._on_change, self._is_ours)
        return self._servers[name]

    def _on_change(self) -> None:
        self._tell_leases({"endpoints": self._endpoints()})

    def _endpoints(self) -> dict[str, Any]:
        return {name: server.endpoint for name, server in self._servers.items() if server.endpoint}

    def _status(self) -> dict[str, Any]:
        servers = {name: server.status() for name, server in self._servers.items()}
        users = sorted(pid for pid in self._leases.values() if pid is not None)
        return {"pid": os.getpid(), "leases": len(self._leases), "users": users, "servers": servers}

    def _tell_leases(self, message: dict[str, Any]) -> None:
        for writer in self._leases:
            _send(writer, message)


def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


def _announce(home: Home) -> None:
    """Tell whoever started us that we listen, and leave its standard output alone from now on."""
    os.write(1, b"ready\n")
    log = os.open(home.log_of("keeper"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.close(log)


def _lock(home: Home) -> int:
    """Become the keeper, waiting for a predecessor that is just stopping."""
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


def _cap_logs(home: Home) -> None:
    for name in ("keeper", "postgres", "clickhouse"):
        log = home.log_of(name)
        if log.exists() and log.stat().st_size > LOG_BYTES_KEPT:
            log.replace(log.with_suffix(".log.1"))


def main(arguments: list[str]) -> int:
    """`python -m aaiclick.local.keeper HOME LINGER`: detach, take the lock, serve."""
    if os.fork():
        os._exit(0)
    home = Home(Path(arguments[0]))
    try:
        handle = _lock(home)
        home.prepare_run()  # a predecessor that was just stopping has removed one that is not in the home
        _cap_logs(home)
        asyncio.run(Keeper(home, float(arguments[1]), handle).run())
        os.close(handle)
    except AaiclickError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
