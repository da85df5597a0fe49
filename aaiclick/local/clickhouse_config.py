"""Configuration and readiness check of the embedded ClickHouse server.

The program's own session needs a user `default` without a password on loopback, so other users of the machine must be
kept out. Queries are served under a secret URL path only (everything else is 404). `default` may have one session,
which the program's endless query occupies; its quota is used up by the two queries that start the listener, and its
grants cover only those. The user `aaiclick` has a password. The keeper sends no secret before it has checked that the
child process itself holds the listening socket.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import socket
from pathlib import Path
from xml.sax.saxutils import escape

import psutil

from aaiclick.local.home import Home, write_private

USER = "aaiclick"
DATABASE = "aaiclick"

ENDLESS_QUERY_RUNS = "SELECT throwIf(count() = 0) FROM system.processes WHERE query LIKE 'SELECT sleepEachRow%'"
CREATE_DATABASE = f"CREATE DATABASE IF NOT EXISTS {DATABASE}"

IDLE_THREADS = 8
"""Idle threads kept per core. Each has a stack and three open files; with the default of 1,000 their number never falls
below that of the busiest moment.
"""

CONFIG = """<clickhouse>
  <users_config>{users}</users_config>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{port}</http_port>
  <max_server_memory_usage_to_ram_ratio>0.6</max_server_memory_usage_to_ram_ratio>
  <max_thread_pool_free_size>{idle_threads}</max_thread_pool_free_size>
  <backups><allowed_path>{backups}</allowed_path></backups>
  <http_handlers>
    <rule><url>/{path}</url><handler><type>dynamic_query_handler</type><query_param_name>query</query_param_name></handler></rule>
  </http_handlers>
</clickhouse>
"""

USERS = """<clickhouse>
  <users>
    <default>
      <password></password>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>listener</profile>
      <quota>listener</quota>
      <grants>
        <query>GRANT SYSTEM LISTEN ON *.*</query>
        <query>GRANT SELECT ON system.numbers</query>
      </grants>
    </default>
    <{user}>
      <password_sha256_hex>{password_hash}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile>
      <quota>default</quota>
      <access_management>1</access_management>
    </{user}>
  </users>
  <profiles>
    <default/>
    <listener>
      <max_sessions_for_user>1</max_sessions_for_user>
      <constraints><max_sessions_for_user><const/></max_sessions_for_user></constraints>
    </listener>
  </profiles>
  <quotas>
    <default/>
    <listener><interval><duration>2147483647</duration><queries>2</queries></interval></listener>
  </quotas>
</clickhouse>
"""


class EmbeddedClickHouse:
    """Configuration files, port and readiness check of the ClickHouse child process."""

    name = "clickhouse"

    def __init__(self, home: Home) -> None:
        self._home = home
        self._secrets = home.read_secrets()
        self._port_file = home.clickhouse / "port.json"
        self.port = 0

    @property
    def stdin_line(self) -> bytes:
        """The line that the child process reads from its standard input."""
        paths = {"configuration": str(self._config_directory), "data": str(self._home.clickhouse / "data")}
        return json.dumps(paths).encode() + b"\n"

    @property
    def _config_directory(self) -> Path:
        return self._home.clickhouse / "configuration"

    def write_config(self) -> None:
        """Write the configuration files; the last port is used again if it is free, so that clients reconnect."""
        self.port = self._choose_port()
        self._config_directory.mkdir(mode=0o700, exist_ok=True)
        users = self._config_directory / "users.xml"
        password_hash = hashlib.sha256(self._secrets.clickhouse_password.encode()).hexdigest()
        write_private(users, USERS.format(user=USER, password_hash=password_hash))
        config = CONFIG.format(
            users=escape(str(users)),
            port=self.port,
            path=self._secrets.clickhouse_path,
            idle_threads=IDLE_THREADS * (os.cpu_count() or 1),
            backups=escape(str(self._home.clickhouse / "backups")),
        )
        write_private(self._config_directory / "config.xml", config)
        write_private(self._port_file, json.dumps(self.port))

    def _choose_port(self) -> int:
        try:
            last = int(json.loads(self._port_file.read_text()))
        except (OSError, ValueError, TypeError, OverflowError):
            last = 0
        return last if 0 < last < 65536 and _is_free(last) else _find_free_port()

    async def is_ready(self, pid: int) -> bool:
        """Return whether the server at the port is the child process and is ready.

        It is ready when its endless query runs (which uses up the quota of `default`) and the database exists.
        """
        if not _is_listening(pid, self.port):
            return False  # another user's process may hold the port: send it no secret
        try:
            return await self._succeeds(ENDLESS_QUERY_RUNS) and await self._succeeds(CREATE_DATABASE)
        except (OSError, TimeoutError):
            return False

    async def _succeeds(self, query: str) -> bool:
        status = await asyncio.wait_for(self._send_query(query), timeout=5)
        return status.startswith(b"HTTP/1.") and b" 200 " in status

    async def _send_query(self, query: str) -> bytes:
        """Send one query over a plain socket (the keeper loads no client library) and return the status line."""
        credential = base64.b64encode(f"{USER}:{self._secrets.clickhouse_password}".encode()).decode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(
                f"POST /{self._secrets.clickhouse_path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                f"Authorization: Basic {credential}\r\nContent-Length: {len(query)}\r\n\r\n{query}".encode()
            )
            return await reader.readline()
        finally:
            writer.close()


def _is_listening(pid: int, port: int) -> bool:
    """Whether the process itself holds the listening socket."""
    try:
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr[1] == port
            for connection in psutil.Process(pid).net_connections("inet")
        )
    except psutil.Error:
        return False


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
