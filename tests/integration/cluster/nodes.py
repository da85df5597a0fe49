"""Two embedded ClickHouse nodes that form a cluster: each listens for HTTP and for the other node."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import clickhouse_connect

from aaiclick.server_addresses import ClickHouseEndpoint

CLUSTER = "pair"
USER = "aaiclick"
PASSWORD = "of both"

CONFIG = """<clickhouse>
  <users_config>{directory}/users.xml</users_config>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http}</http_port>
  <tcp_port>{tcp}</tcp_port>
  <max_server_memory_usage_to_ram_ratio>0.3</max_server_memory_usage_to_ram_ratio>
  <remote_servers><{cluster}>{shards}</{cluster}></remote_servers>
</clickhouse>
"""
SHARD = """<shard><replica><host>127.0.0.1</host><port>{tcp}</port>
  <user>{user}</user><password>{password}</password></replica></shard>"""
USERS = """<clickhouse>
  <users>
    <default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
      <quota>default</quota></default>
    <{user}><password_sha256_hex>{digest}</password_sha256_hex><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota></{user}>
  </users>
  <profiles><default/></profiles><quotas><default/></quotas>
</clickhouse>
"""


@dataclass
class ClusterNode:
    """One server; it keeps its ports and data over restarts."""

    directory: Path
    http: int
    tcp: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def endpoint(self) -> ClickHouseEndpoint:
        return ClickHouseEndpoint("127.0.0.1", self.http, USER, "default", PASSWORD)

    def write_config(self, all_tcp: list[int]) -> None:
        self.directory.mkdir(parents=True)
        shards = "".join(SHARD.format(tcp=tcp, user=USER, password=PASSWORD) for tcp in all_tcp)
        config = CONFIG.format(directory=self.directory, http=self.http, tcp=self.tcp, cluster=CLUSTER, shards=shards)
        (self.directory / "config.xml").write_text(config)
        digest = hashlib.sha256(PASSWORD.encode()).hexdigest()
        (self.directory / "users.xml").write_text(USERS.format(user=USER, digest=digest))

    def start(self) -> None:
        order = {"configuration": str(self.directory), "data": str(self.directory / "data"), "listen": ["HTTP", "TCP"]}
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "aaiclick.local.clickhouse_server"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        pipe = cast("IO[bytes]", self.process.stdin)
        pipe.write(json.dumps(order).encode() + b"\n")
        pipe.flush()
        self._wait_until_listening()

    def _wait_until_listening(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                for port in (self.http, self.tcp):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline or (self.process and self.process.poll() is not None):
                    raise
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            cast("IO[bytes]", self.process.stdin).close()
            self.process = None

    def connect_admin(self):
        return clickhouse_connect.get_client(
            host="127.0.0.1", port=self.http, username=USER, password=PASSWORD, autogenerate_session_id=False
        )


def make_pair(directory: Path) -> list[ClusterNode]:
    ports = _free_ports(4)
    nodes = [ClusterNode(directory / f"node{i}", ports[2 * i], ports[2 * i + 1]) for i in range(2)]
    for node in nodes:
        node.write_config([other.tcp for other in nodes])
    return nodes


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
