"""Schedule, network, faults and end of a chaos run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from subprocess import PIPE
from types import SimpleNamespace

import pytest

from aaiclick.chaos.environment import ChaosEnvironment
from aaiclick.chaos.fault_schedule import INTERVALS, ScheduledFault, make_schedule
from aaiclick.chaos.faults import FaultInjector
from aaiclick.chaos.run import stop_load
from aaiclick.chaos.servers import Route, make_wrong_clock
from aaiclick.chaos.tcp_proxy import TcpProxy
from aaiclick.errors import NotFoundError
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint

# --- the schedule -----------------------------------------------------------------------------------------------------


def test_same_seed_gives_same_schedule():
    assert make_schedule(7, 60, INTERVALS) == make_schedule(7, 60, INTERVALS)
    assert make_schedule(7, 60, INTERVALS) != make_schedule(8, 60, INTERVALS)


@pytest.mark.parametrize("seconds", [20, 60, 600])
def test_every_kind_of_fault_occurs_in_first_half(seconds):
    faults = make_schedule(3, seconds, INTERVALS)
    assert {fault.kind for fault in faults if fault.at_seconds <= seconds / 2} == set(INTERVALS)
    assert faults == sorted(faults)


def test_only_requested_kinds_of_faults_occur():
    assert {fault.kind for fault in make_schedule(1, 100, ["worker", "disk"])} == {"worker", "disk"}


# --- the network ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def echo():
    async def answer(reader, writer):
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(100):
                writer.write(piece)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    proxy = TcpProxy(("127.0.0.1", server.sockets[0].getsockname()[1]))
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()


async def say(writer, reader, data=b"hello"):
    writer.write(data)
    return await reader.readexactly(len(data))


async def test_proxy_forwards_data(echo):
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    assert await say(writer, reader) == b"hello"
    writer.close()


async def test_proxy_closes_connection_after_both_eofs(echo):
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"hello", "data after EOF"
        writer.close()
    for _ in range(1_000):
        if echo.ends:
            await asyncio.sleep(0.01)
    assert echo.ends == 0


async def test_latency_mode_delays_data(echo):
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    injection = asyncio.create_task(echo.inject("latency", 60))
    await asyncio.sleep(0)
    started_at = time.monotonic()
    assert await say(writer, reader) == b"hello"
    assert time.monotonic() - started_at >= 0.04, "both ways"
    injection.cancel()
    writer.close()


@pytest.mark.parametrize("mode", ["reset", "blackhole", "half-open"])
async def test_cut_raises_error_and_new_connection_works(echo, mode):
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    assert await say(writer, reader) == b"hello"
    injection = asyncio.create_task(echo.inject(mode, 0.1))
    await asyncio.sleep(0)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await say(writer, reader)
    await injection
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    assert await say(writer, reader) == b"hello"
    writer.close()


async def test_second_fault_waits_for_first(echo):
    first = asyncio.create_task(echo.inject("blackhole", 60))
    await asyncio.sleep(0)
    second = asyncio.create_task(echo.inject("reset", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    writer.write(b"hello")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(5), 0.2)
    assert (echo.mode, second.done()) == ("blackhole", False)
    first.cancel()
    await asyncio.wait([first, second])
    assert echo.mode == "pass"
    writer.close()


async def test_network_fault_hits_used_routes():
    servers = SimpleNamespace(
        postgres=PostgresEndpoint("h", 1, "u", "d"), clickhouse=ClickHouseEndpoint("h", 1, "u", "d"),
        make_proxy=lambda _: TcpProxy(("127.0.0.1", 1)),
    )  # fmt: skip
    client, served = await Route.make(servers, data=False), await Route.make(servers, 80, data=False)
    worker, server = await Route.make(servers), await Route.make(servers)
    environment = SimpleNamespace(
        clients=[SimpleNamespace(number=1, route=client)], server=SimpleNamespace(route=server),
        workers=[SimpleNamespace(number=1, route=worker), SimpleNamespace(number=2, route=served)],
    )  # fmt: skip
    hits = Counter()
    for seed in range(200):
        messages = []
        await FaultInjector(environment, messages.append).run([ScheduledFault(0.0, "network", seed)])
        hits[messages[0].split("between ")[1].split(" for")[0]] += 1
    assert set(hits) == {
        "client 1 and queue", "worker 1 and queue", "worker 1 and clickhouse", "worker 2 and queue",
        "server 1 and queue", "server 1 and clickhouse",
    }  # fmt: skip
    worker.proxies["clickhouse"].mode = "latency"
    assert "worker 1" not in dict(FaultInjector(environment, print)._list_routes()), "its route already has a fault"
    for route in (client, served, worker, server):
        await route.close()


# --- other faults -----------------------------------------------------------------------------------------------------

CLOCKS = """
import datetime, pickle, time
from datetime import UTC
clocks = time.time(), time.time_ns() / 1e9, datetime.datetime.now(UTC).timestamp(), datetime.datetime.now().timestamp()
there = pickle.loads(pickle.dumps(datetime.datetime.now(tz=UTC))).timestamp()
print(*clocks, datetime.datetime.utcnow().replace(tzinfo=UTC).timestamp(), datetime.datetime.today().timestamp(), there)
"""


@pytest.mark.parametrize("shift", [86_400.0, -3_600.0])
def test_wrong_clock_affects_all_time_functions(tmp_path, shift):
    started = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLOCKS],
        env={**os.environ, **make_wrong_clock(tmp_path, shift)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    times = [float(time_) for time_ in started.stdout.split()]
    assert [time_ - shift for time_ in times] == pytest.approx([time.time()] * 7, abs=60), started.stderr


class IdleInjector(FaultInjector):
    """A fault injector without processes."""

    def __init__(self, workers=(), *, disk=False) -> None:
        self.messages = []
        self.disk = disk
        lock = asyncio.Lock()
        environment = SimpleNamespace(
            workers=list(workers), frozen=set(), skipped=set(), workers_lock=lock, fill_workers=self._fill_workers
        )
        super().__init__(environment, self.messages.append)
        self.environment = environment

    async def _fill_workers(self, **_):
        return [SimpleNamespace(has_full_disk=self.disk)]

    def _kill_processes(self, fault_kind, processes):
        """There are no processes."""


@pytest.mark.parametrize("can_mount", [True, False])
async def test_disk_fault_without_mount_is_not_counted(can_mount):
    injector = IdleInjector([SimpleNamespace(alive=True, number=1, processes=list)], disk=can_mount)
    await injector.run([ScheduledFault(0.0, "disk", 1)])
    assert injector.counts == ({"disk": 1} if can_mount else {})
    assert injector.environment.skipped == (set() if can_mount else {"disk: no permission to mount a small disk"})


@pytest.mark.parametrize("fault_kind", ["worker", "zombie", "clock"])
async def test_fault_without_target_is_not_counted(fault_kind, monkeypatch):
    monkeypatch.setattr("aaiclick.chaos.faults.RETRY_SECONDS", 0)
    injector = IdleInjector()
    await injector.run([ScheduledFault(0.0, fault_kind, 1)])
    assert injector.counts == {}
    assert injector.messages == [f"   0.0 s  {fault_kind}: no worker was running"]


# --- the end ----------------------------------------------------------------------------------------------------------


class Refused:
    """A client that waits forever, or that misses its job."""

    def __init__(self, *, waits) -> None:
        self._waits = waits

    async def submit(self, tasks) -> None:
        if self._waits:
            await asyncio.sleep(600)
        raise NotFoundError("There is no job 7.", remedy="Look.")


async def test_unexpected_client_error_is_reported():
    environment = SimpleNamespace(clients=[Refused(waits=True), Refused(waits=False)])
    load = asyncio.create_task(ChaosEnvironment.submit_all(environment, 100))
    await asyncio.wait([load], timeout=60)
    [message] = await stop_load(load)
    assert message.startswith("unexpected error of a client: NotFoundError: There is no job 7.")
    waiting = asyncio.create_task(ChaosEnvironment.submit_all(SimpleNamespace(clients=[Refused(waits=True)]), 100))
    await asyncio.sleep(0)
    assert await stop_load(waiting) == []


IN_THE_BACKGROUND = """
import asyncio, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from aaiclick.cli.chaos import _run_interruptible

async def work():
    try:
        print("ready", flush=True)
        await asyncio.sleep(600)
    finally:
        print("cleared", flush=True)

_run_interruptible(work())
"""


def test_sigterm_ends_run_with_ignored_sigint():
    """A shell starts background processes with SIGINT ignored."""
    with subprocess.Popen([sys.executable, "-c", IN_THE_BACKGROUND], stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.communicate(timeout=60)[0] == "cleared\n"
