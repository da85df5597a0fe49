"""What breaks, and how: each kind of fault, done to a scene."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import psutil

from aaiclick.chaos.history import note
from aaiclick.chaos.proxy import AT_ONCE, MODES
from aaiclick.chaos.scene import Scene
from aaiclick.chaos.schedule import Strike
from aaiclick.chaos.servers import LEASE_SECONDS, ServedWorker, Way, Worker
from aaiclick.orchestration.transport.line import GONE
from aaiclick.store.engine import connect

TRIES = 4
AGAIN_SECONDS = 0.5
NO_MOUNT = "no right to mount a small one"


class Missed(Exception):  # noqa: N818
    """Nobody was struck. A moment later somebody may be there (`again`)."""

    def __init__(self, reason: str, *, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


class Strikes:
    """Does what a schedule says, and counts what it did."""

    def __init__(self, scene: Scene, say: Callable[[str], None]) -> None:
        self._scene = scene
        self._say = say
        self._pending: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def run(self, strikes: Sequence[Strike]) -> None:
        """One after the other, each at its time."""
        began = time.monotonic()
        try:
            for strike in strikes:
                await asyncio.sleep(max(0.0, strike.at_seconds - (time.monotonic() - began)))
                self._say(f"{strike.at_seconds:6.1f} s  {await self._strike(strike)}")
        finally:
            for task in self._pending:
                task.cancel()
            await asyncio.gather(*self._pending, return_exceptions=True)

    async def _strike(self, strike: Strike) -> str:
        """Says what it did; what hits nobody is tried again for a moment, and does not count."""
        what = ""
        for _ in range(TRIES):
            try:
                what = await getattr(self, f"_strike_{strike.kind}")(strike)
            except Missed as missed:
                what = f"{strike.kind}: {missed}"
                if not missed.again:
                    break
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                self.counts[strike.kind] += 1
                break
        return what

    def _choose(self, strike: Strike) -> Worker:
        able = [each for each in self._scene.workers if each.alive and each.number not in self._scene.frozen]
        if not able:
            raise Missed("no worker was there")
        return strike.rng().choice(able)

    async def _strike_worker(self, strike: Strike) -> str:
        """Its process, its supervisor, or both."""
        worker = self._choose(strike)
        supervisor, *others = worker.processes() or [None]
        victims = {"process": others, "supervisor": [supervisor], "all": [supervisor, *others]}
        which = strike.rng().choice(list(victims))
        self._kill(strike.kind, [each for each in victims[which] if each is not None])
        await asyncio.sleep(0.2)
        await self._scene.replace_dead()
        return f"worker {worker.number}: {which} killed"

    def _kill(self, kind: str, victims: list[psutil.Process]) -> None:
        if not victims:
            raise Missed("there was no process to kill")
        for victim in victims:
            with contextlib.suppress(psutil.Error):
                victim.kill()
        note(self._scene.history, "strikes", kind=kind, killed=[victim.pid for victim in victims])

    async def _strike_zombie(self, strike: Strike) -> str:
        """Frozen for longer than its lease, then let go on."""
        worker = self._choose(strike)
        frozen = worker.processes()
        for process in frozen:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        self._scene.frozen.add(worker.number)
        seconds = LEASE_SECONDS + strike.rng().uniform(1, 4)
        note(self._scene.history, "strikes", kind="zombie", frozen=[each.pid for each in frozen], seconds=seconds)

        async def wake() -> None:
            await asyncio.sleep(seconds)
            for process in frozen:
                with contextlib.suppress(psutil.Error):
                    process.resume()
            self._scene.frozen.discard(worker.number)

        self._later(wake())
        return f"worker {worker.number}: frozen for {seconds:.1f} s, past its lease"

    async def _strike_postgres(self, _: Strike) -> str:
        return await self._kill_server("postgres")

    async def _strike_clickhouse(self, _: Strike) -> str:
        return await self._kill_server("clickhouse")

    async def _kill_server(self, name: str) -> str:
        if not await asyncio.to_thread(self._scene.servers.kill, name):
            raise Missed("was down")
        return f"{name}: killed"

    async def _strike_network(self, strike: Strike) -> str:
        """Somebody's way to a server, one that is good at the moment."""
        rng = strike.rng()
        who, way = rng.choice(self._ways())
        server = rng.choice([each for each in ("queue", "queue", "clickhouse", "server") if each in way.lines])
        proxy, mode = way.lines[server], rng.choice(MODES)
        if mode == "forgotten" and (server != "queue" or way not in self._patient()):
            mode = "reset"
        seconds = rng.uniform(0.5, 1.5 * LEASE_SECONDS)
        self._later(proxy.strike(mode, seconds))
        return f"network: {mode} between {who} and {server} for {0 if mode in AT_ONCE else seconds:.1f} s"

    def _ways(self) -> list[tuple[str, Way]]:
        """Who has one, and no trouble on it yet."""
        ways = [(f"client {client.number}", client.way) for client in self._scene.clients]
        ways += [(f"worker {worker.number}", worker.way) for worker in self._scene.workers]
        ways.append(("server 1", self._scene.server.way))
        return [(who, way) for who, way in ways if all(each.mode == "pass" for each in way.lines.values())] or ways

    def _patient(self) -> list[Way]:
        """Those who notice that an answer does not come though the network takes everything: workers on PostgreSQL."""
        return [each.way for each in self._scene.workers if not isinstance(each, ServedWorker)]

    async def _strike_server(self, strike: Strike) -> str:
        self._kill(strike.kind, self._scene.server.processes())
        await asyncio.sleep(0.2)
        await self._scene.replace_dead()
        return "server: killed"

    async def _strike_leader(self, strike: Strike) -> str:
        """Whoever leads is killed, with all its processes."""
        pid = None
        with contextlib.suppress(*GONE):  # PostgreSQL may be away
            connection = await connect(self._scene.servers.postgres)
            try:
                pid = await connection.fetchval("SELECT pid FROM workers WHERE is_leader")
            finally:
                connection.terminate()
        leader = next((each for each in self._scene.workers if each.pid == pid), None)
        if leader is None:
            raise Missed("there was none")
        self._kill(strike.kind, leader.processes())
        await asyncio.sleep(0.2)
        await self._scene.replace_dead()
        return f"leader: worker {leader.number} killed"

    async def _strike_clock(self, strike: Strike) -> str:
        """A worker is replaced by one whose clock is wrong by up to a day."""
        shift = strike.rng().choice((-1, 1)) * strike.rng().uniform(60, 86_400)
        return await self._exchange(strike, f"clock wrong by {shift:+,.0f} s", clock_seconds=shift)

    async def _strike_disk(self, strike: Strike) -> str:
        """A worker is replaced by one whose disk for logs is full at once."""
        return await self._exchange(strike, "disk full", full_disk=True)

    async def _exchange(self, strike: Strike, how: str, *, clock_seconds: float = 0.0, full_disk: bool = False) -> str:
        worker = self._choose(strike)
        async with self._scene.changing:
            self._kill(strike.kind, worker.processes())
            started = await self._scene.fill(without=worker, clock_seconds=clock_seconds, full_disk=full_disk)
        if full_disk and not any(each.has_full_disk for each in started):
            self._scene.skipped.add(f"disk: {NO_MOUNT}")
            raise Missed(NO_MOUNT, again=False)
        return f"worker {worker.number}: replaced by one with its {how}"

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
