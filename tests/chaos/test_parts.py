"""The parts of a chaos run: its schedule, its network, its faults and its end."""

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

from aaiclick.chaos.proxy import Proxy
from aaiclick.chaos.run import end_load
from aaiclick.chaos.scene import Scene
from aaiclick.chaos.schedule import INTERVALS, Strike, schedule
from aaiclick.chaos.servers import Way, wrong_clock
from aaiclick.chaos.strikes import Strikes
from aaiclick.errors import NotFoundError
from aaiclick.targets import ClickHouseTarget, PostgresTarget

# --- the schedule -----------------------------------------------------------------------------------------------------


def test_the_same_seed_breaks_the_same_things():
    assert schedule(7, 60, INTERVALS) == schedule(7, 60, INTERVALS)
    assert schedule(7, 60, INTERVALS) != schedule(8, 60, INTERVALS)


@pytest.mark.parametrize("seconds", [20, 60, 600])
def test_every_kind_comes_in_the_first_half(seconds):
    strikes = schedule(3, seconds, INTERVALS)
    assert {each.kind for each in strikes if each.at_seconds <= seconds / 2} == set(INTERVALS)
    assert strikes == sorted(strikes)


def test_a_kind_that_is_not_asked_for_does_not_come():
    assert {each.kind for each in schedule(1, 100, ["worker", "disk"])} == {"worker", "disk"}


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
    proxy = Proxy(("127.0.0.1", server.sockets[0].getsockname()[1]))
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()


async def say(writer, reader, word=b"hello"):
    writer.write(word)
    return await reader.readexactly(len(word))


async def test_a_good_network_passes_everything_on(echo):
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    assert await say(writer, reader) == b"hello"
    writer.close()


async def test_a_connection_that_both_have_ended_is_closed(echo):
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"hello", "what comes after the end of the question"
        writer.close()
    for _ in range(1_000):
        if echo.ends:
            await asyncio.sleep(0.01)
    assert echo.ends == 0


async def test_a_slow_network_passes_everything_on_late(echo):
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    striking = asyncio.create_task(echo.strike("latency", 60))
    await asyncio.sleep(0)
    began = time.monotonic()
    assert await say(writer, reader) == b"hello"
    assert time.monotonic() - began >= 0.04, "both ways"
    striking.cancel()
    writer.close()


@pytest.mark.parametrize("mode", ["reset", "blackhole", "half-open"])
async def test_a_cut_is_felt_and_a_new_connection_works(echo, mode):
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    assert await say(writer, reader) == b"hello"
    striking = asyncio.create_task(echo.strike(mode, 0.1))
    await asyncio.sleep(0)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await say(writer, reader)
    await striking
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    assert await say(writer, reader) == b"hello"
    writer.close()


async def test_a_second_strike_does_not_end_the_first(echo):
    first = asyncio.create_task(echo.strike("blackhole", 60))
    await asyncio.sleep(0)
    second = asyncio.create_task(echo.strike("reset", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    writer.write(b"hello")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(5), 0.2)
    assert (echo.mode, second.done()) == ("blackhole", False)
    first.cancel()
    await asyncio.wait([first, second])
    assert echo.mode == "pass"
    writer.close()


async def test_only_ways_that_somebody_uses_are_struck():
    servers = SimpleNamespace(
        postgres=PostgresTarget("h", 1, "u", "d"), clickhouse=ClickHouseTarget("h", 1, "u", "d"),
        proxy_of=lambda _: Proxy(("127.0.0.1", 1)),
    )  # fmt: skip
    client, served = await Way.make(servers, data=False), await Way.make(servers, 80, data=False)
    worker, server = await Way.make(servers), await Way.make(servers)
    scene = SimpleNamespace(
        clients=[SimpleNamespace(number=1, way=client)], server=SimpleNamespace(way=server),
        workers=[SimpleNamespace(number=1, way=worker), SimpleNamespace(number=2, way=served)],
    )  # fmt: skip
    struck = Counter()
    for dice in range(200):
        said = []
        await Strikes(scene, said.append).run([Strike(0.0, "network", dice)])
        struck[said[0].split("between ")[1].split(" for")[0]] += 1
    assert set(struck) == {
        "client 1 and queue", "worker 1 and queue", "worker 1 and clickhouse", "worker 2 and queue",
        "server 1 and queue", "server 1 and clickhouse",
    }  # fmt: skip
    worker.lines["clickhouse"].mode = "latency"
    assert "worker 1" not in dict(Strikes(scene, print)._ways()), "who is in trouble already"
    for way in (client, served, worker, server):
        await way.close()


# --- other faults -----------------------------------------------------------------------------------------------------

CLOCKS = """
import datetime, pickle, time
from datetime import UTC
clocks = time.time(), time.time_ns() / 1e9, datetime.datetime.now(UTC).timestamp(), datetime.datetime.now().timestamp()
there = pickle.loads(pickle.dumps(datetime.datetime.now(tz=UTC))).timestamp()
print(*clocks, datetime.datetime.utcnow().replace(tzinfo=UTC).timestamp(), datetime.datetime.today().timestamp(), there)
"""


@pytest.mark.parametrize("shift", [86_400.0, -3_600.0])
def test_a_clock_that_is_wrong_is_wrong_for_all_who_ask(tmp_path, shift):
    started = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLOCKS],
        env={**os.environ, **wrong_clock(tmp_path, shift)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = [float(each) for each in started.stdout.split()]
    assert [each - shift for each in told] == pytest.approx([time.time()] * 7, abs=60), started.stderr


class Still(Strikes):
    """Nothing waits."""

    def __init__(self, workers=(), *, disk=False) -> None:
        self.said = []
        self.disk = disk
        changing = asyncio.Lock()
        scene = SimpleNamespace(workers=list(workers), frozen=set(), skipped=set(), changing=changing, fill=self._fill)
        super().__init__(scene, self.said.append)
        self.scene = scene

    async def _fill(self, **_):
        return [SimpleNamespace(has_full_disk=self.disk)]

    def _kill(self, kind, victims):
        """Nobody is there."""


@pytest.mark.parametrize("able", [True, False])
async def test_a_disk_that_could_not_be_mounted_is_no_strike(able):
    strikes = Still([SimpleNamespace(alive=True, number=1, processes=list)], disk=able)
    await strikes.run([Strike(0.0, "disk", 1)])
    assert strikes.counts == ({"disk": 1} if able else {})
    assert strikes.scene.skipped == (set() if able else {"disk: no right to mount a small one"})


@pytest.mark.parametrize("kind", ["worker", "zombie", "clock"])
async def test_what_hits_nobody_is_no_strike(kind, monkeypatch):
    monkeypatch.setattr("aaiclick.chaos.strikes.AGAIN_SECONDS", 0)
    strikes = Still()
    await strikes.run([Strike(0.0, kind, 1)])
    assert strikes.counts == {}
    assert strikes.said == [f"   0.0 s  {kind}: no worker was there"]


# --- its end ----------------------------------------------------------------------------------------------------------


class Refused:
    """A client whose job is gone; the other one waits for ever."""

    def __init__(self, *, waits) -> None:
        self._waits = waits

    async def submit(self, tasks) -> None:
        if self._waits:
            await asyncio.sleep(600)
        raise NotFoundError("There is no job 7.", remedy="Look.")


async def test_what_a_client_could_not_expect_is_told_and_keeps_nobody_from_judging():
    scene = SimpleNamespace(clients=[Refused(waits=True), Refused(waits=False)])
    load = asyncio.create_task(Scene.load(scene, 100))
    await asyncio.wait([load], timeout=60)
    [told] = await end_load(load)
    assert told.startswith("a client was told: NotFoundError: There is no job 7.")
    waiting = asyncio.create_task(Scene.load(SimpleNamespace(clients=[Refused(waits=True)]), 100))
    await asyncio.sleep(0)
    assert await end_load(waiting) == []


IN_THE_BACKGROUND = """
import asyncio, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from aaiclick.cli.chaos import _run

async def work():
    try:
        print("ready", flush=True)
        await asyncio.sleep(600)
    finally:
        print("cleared", flush=True)

_run(work())
"""


def test_it_is_told_to_end_where_nobody_can_interrupt_it():
    """As by a shell that started it in the background."""
    with subprocess.Popen([sys.executable, "-c", IN_THE_BACKGROUND], stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.communicate(timeout=60)[0] == "cleared\n"
