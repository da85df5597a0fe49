"""One chaos run: start everything, load it, break it by the schedule, let it come to rest, and judge."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psutil

from aaiclick.catalog.deploy import deploy
from aaiclick.chaos.checker import WATCH, Verdict, judge
from aaiclick.chaos.flow import DAG, JOBS, NAME
from aaiclick.chaos.history import note
from aaiclick.chaos.load import CLIENTS, RETRY, Client
from aaiclick.chaos.proxy import AT_ONCE, MODES, Proxy
from aaiclick.chaos.schedule import Strike, schedule
from aaiclick.chaos.servers import LEASE_SECONDS, ApiServer, Program, ServedWorker, Servers, Way, Worker
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.orchestration import OrchContext, RetryPolicy, set_retry_policy
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper
from aaiclick.store.engine import connect
from aaiclick.store.keys import create_key
from aaiclick.store.orgs import create_org
from aaiclick.store.tables import release_jobs
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

SERVED_WORKERS = 1
MIND_SECONDS = 1.0
ORGS = 3
REST_SECONDS = 300.0
"""How long everything may take to come to rest once the faults have ended."""

UNFINISHED = """
    SELECT (SELECT count(*) FROM tasks WHERE completed_at IS NULL)
        + (SELECT count(*) FROM jobs WHERE completed_at IS NULL)
"""


@dataclass(frozen=True)
class Order:
    """What to do."""

    seed: int
    tasks: int
    seconds: float
    faults: Collection[str]
    workers: int = 2
    keep: Path | None = None


@dataclass
class Report:
    """What happened."""

    verdict: Verdict
    strikes: Counter[str]
    seconds: float
    came_to_rest: bool
    swept: int
    skipped: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        return self.verdict.clean and self.came_to_rest


async def run(order: Order, say: Callable[[str], None]) -> Report:
    """Do all of it, in a directory that is removed unless it is to be kept."""
    directory = order.keep or Path(tempfile.mkdtemp(prefix="aaiclick-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        return await _Run(order, directory, say).run()
    finally:
        if order.keep is None:
            shutil.rmtree(directory, ignore_errors=True)


class _Run:
    def __init__(self, order: Order, directory: Path, say: Callable[[str], None]) -> None:
        self._order = order
        self._directory = directory
        self._history = directory / "history"
        self._history.mkdir()
        self._say = say
        self._servers = Servers(directory)
        self._server: ApiServer
        self._key = ""
        self._workers: list[Worker] = []
        self._dead: list[Program] = []
        self._ways: list[Way] = []
        self._clients: list[Client] = []
        self._strikes: Counter[str] = Counter()
        self._started = 0
        self._frozen: set[int] = set()
        self._pending: set[asyncio.Task[None]] = set()
        self._skipped: list[str] = []
        self._replacing = asyncio.Lock()

    async def run(self) -> Report:
        await self._servers.start()
        connection = await connect(self._servers.postgres)
        try:
            await connection.execute(WATCH)
            orgs = [DEFAULT_ORG_ID, *await self._make_orgs(connection)]
            await deploy(connection, DAG)
            async with OrchContext(target=self._servers.postgres):
                for job in JOBS:
                    await set_retry_policy(f"{NAME}.{job}", RetryPolicy(**RETRY))
            made = await create_key(connection, org_id=DEFAULT_ORG_ID, name="chaos", scopes=["worker"])
            self._key = made.text
        finally:
            await connection.close()
        try:
            return await self._run(orgs)
        finally:
            for task in self._pending:
                task.cancel()
            for worker in self._workers:
                self._thaw(worker)
            for program in [*self._workers, *self._dead]:
                await program.clear()
            for way in self._ways:
                await way.close()
            await asyncio.to_thread(self._servers.stop)

    async def _make_orgs(self, connection: Connection) -> list[UUID]:
        return [(await create_org(connection, name=f"Org {n}", slug=f"org{n}"))["id"] for n in range(1, ORGS)]

    async def _run(self, orgs: list[UUID]) -> Report:
        self._server = ApiServer(self._directory, await Way.make(self._servers))
        self._dead.append(self._server)  # to be cleared with them
        self._server.start()
        await self._replace_dead()
        for number in range(CLIENTS):
            way = await Way.make(self._servers)
            self._ways.append(way)
            rng = random.Random(f"{self._order.seed}/client {number}")  # noqa: S311
            self._clients.append(Client(number, rng, way, self._history, orgs))
        began = time.monotonic()
        load = asyncio.gather(*(client.submit(self._order.tasks // CLIENTS) for client in self._clients))
        breaking, minding = asyncio.create_task(self._break()), asyncio.create_task(self._mind())
        rested = await self._wait(began, load)
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        if not rested:
            self._say("Faults have ended; everything may come to rest.")
            await self._calm()
            async with asyncio.timeout(REST_SECONDS):
                await load
            rested = await self._rests(REST_SECONDS)
        seconds = time.monotonic() - began
        minding.cancel()
        await asyncio.gather(minding, return_exceptions=True)
        await self._calm()
        return await self._judge(seconds, rested)

    async def _wait(self, began: float, load: asyncio.Future[list[None]]) -> bool:
        """Until all is submitted and done, or the time is over; whether all is done."""
        while (left := self._order.seconds - (time.monotonic() - began)) > 0:
            if load.done():
                load.result()
                if await self._rests(min(left, 1.0)):
                    return True
            else:
                await asyncio.wait([load], timeout=min(left, 1.0))
        return False

    async def _rests(self, seconds: float) -> bool:
        """Whether nothing is left to be done within some time."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(Exception):  # PostgreSQL may be away: look again
                connection = await connect(self._servers.postgres)
                try:
                    if await connection.fetchval(UNFINISHED) == 0:
                        return True
                finally:
                    connection.terminate()
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.2)

    async def _judge(self, seconds: float, rested: bool) -> Report:
        self._say(f"At rest after {seconds:.1f} s; looking at what is there.")
        for program in (*self._workers, self._server):
            await program.stop()
        self._dead += self._workers
        self._workers.clear()
        left = await self._left()
        connection = await connect(self._servers.postgres)
        try:
            jobs = [row["id"] for row in await connection.fetch("SELECT id FROM jobs")]
            await release_jobs(connection, jobs)
            postgres, clickhouse = self._servers.postgres, self._servers.clickhouse
            await PgCleanupWorker(reclaim_seconds=0, postgres=postgres, clickhouse=clickhouse).run_once()
            sweeper = TableSweeper(0, postgres=postgres, clickhouse=clickhouse)
            swept = sum([await sweeper.run_once() for _ in range(2)])
            verdict = await judge(connection, await connect_clickhouse(clickhouse), self._history)
            verdict.violated += [f"process {pid} outlived its worker" for pid in left]
        finally:
            await connection.close()
        return Report(verdict, self._strikes, seconds, rested, swept, self._skipped)

    async def _left(self) -> list[int]:
        """Processes that did not end with their supervisor; they may take as long as their leases last."""
        deadline = time.monotonic() + 2 * LEASE_SECONDS
        while True:
            left = [pid for program in self._dead for pid in program.left()]
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(0.1)

    # --- workers ------------------------------------------------------------------------------------------------------

    async def _add_worker(self, *, served: bool, clock_seconds: float = 0.0, full_disk: bool = False) -> Worker:
        self._started += 1
        way = await Way.make(self._servers, self._server.port if served else None)
        number, directory = self._started, self._directory
        worker = ServedWorker(number, directory, way, self._key) if served else Worker(number, directory, way)
        worker.start(clock_seconds=clock_seconds, full_disk=full_disk)
        self._workers.append(worker)
        return worker

    def _thaw(self, worker: Program) -> None:
        for process in worker.processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)

    async def _calm(self) -> None:
        """Let everything live: what is frozen goes on, and there are as many workers as there should be."""
        for worker in self._workers:
            self._thaw(worker)
        self._frozen.clear()
        await self._replace_dead()

    async def _mind(self) -> None:
        """What every installation has: somebody who starts workers again. One that finds no PostgreSQL ends at once."""
        while True:
            await asyncio.sleep(MIND_SECONDS)
            for program in (*self._workers, self._server):
                program.processes()  # it remembers them
            await self._replace_dead()

    async def _replace_dead(self, *, clock_seconds: float = 0.0, full_disk: bool = False) -> None:
        async with self._replacing:
            for worker in [each for each in self._workers if not each.alive]:
                self._workers.remove(worker)
                self._dead.append(worker)
            if not self._server.alive:
                self._server.start()
            served = sum(isinstance(each, ServedWorker) for each in self._workers)
            missing = [False] * (self._order.workers - len(self._workers) + served)
            for kind in [*missing, *[True] * (SERVED_WORKERS - served)]:
                worker = await self._add_worker(served=kind, clock_seconds=clock_seconds, full_disk=full_disk)
                if full_disk and not worker.has_full_disk:
                    self._skipped.append("disk: no right to mount a small one")

    # --- faults -------------------------------------------------------------------------------------------------------

    async def _break(self) -> None:
        began = time.monotonic()
        for strike in schedule(self._order.seed, self._order.seconds, self._order.faults):
            await asyncio.sleep(max(0.0, strike.at_seconds - (time.monotonic() - began)))
            what = await getattr(self, f"_strike_{strike.kind}")(strike)
            self._strikes[strike.kind] += 1
            self._say(f"{strike.at_seconds:6.1f} s  {what}")

    def _choose(self, strike: Strike) -> Worker | None:
        able = [each for each in self._workers if each.alive and each.number not in self._frozen]
        return strike.rng().choice(able) if able else None

    async def _strike_worker(self, strike: Strike) -> str:
        """Its process, its supervisor, or both."""
        worker = self._choose(strike)
        if worker is None:
            return "worker: nobody was there to be killed"
        supervisor, *others = worker.processes() or [None]
        victims = {"process": others, "supervisor": [supervisor], "all": [supervisor, *others]}
        which = strike.rng().choice(list(victims))
        self._kill(strike.kind, [each for each in victims[which] if each is not None])
        await asyncio.sleep(0.2)
        await self._replace_dead()
        return f"worker {worker.number}: {which} killed"

    def _kill(self, kind: str, victims: list[psutil.Process]) -> None:
        for victim in victims:
            with contextlib.suppress(psutil.Error):
                victim.kill()
        note(self._history, "strikes", kind=kind, killed=[victim.pid for victim in victims])

    async def _strike_zombie(self, strike: Strike) -> str:
        """Frozen for longer than its lease, then let go on."""
        worker = self._choose(strike)
        if worker is None:
            return "zombie: nobody was there to be frozen"
        frozen = worker.processes()
        for process in frozen:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        self._frozen.add(worker.number)
        seconds = LEASE_SECONDS + strike.rng().uniform(1, 4)
        note(self._history, "strikes", kind="zombie", frozen=[each.pid for each in frozen], seconds=seconds)

        async def wake() -> None:
            await asyncio.sleep(seconds)
            for process in frozen:
                with contextlib.suppress(psutil.Error):
                    process.resume()
            self._frozen.discard(worker.number)

        self._later(wake())
        return f"worker {worker.number}: frozen for {seconds:.1f} s, past its lease"

    async def _strike_postgres(self, _: Strike) -> str:
        return f"postgres: {'killed' if await asyncio.to_thread(self._servers.kill, 'postgres') else 'was down'}"

    async def _strike_clickhouse(self, _: Strike) -> str:
        return f"clickhouse: {'killed' if await asyncio.to_thread(self._servers.kill, 'clickhouse') else 'was down'}"

    async def _strike_network(self, strike: Strike) -> str:
        """Somebody's way to a server."""
        rng = strike.rng()
        ways = [("client", client.number, client.way) for client in self._clients]
        ways += [("worker", worker.number, worker.way) for worker in self._workers]
        ways.append(("server", 1, self._server.way))
        who, number, way = rng.choice(ways)
        server, mode = rng.choice(("queue", "queue", "clickhouse")), rng.choice(MODES)
        if mode == "forgotten" and (server != "queue" or way not in self._patient()):
            mode = "reset"
        proxy: Proxy = getattr(way, server)
        seconds = rng.uniform(0.5, 1.5 * LEASE_SECONDS)
        self._later(proxy.strike(mode, seconds))
        return f"network: {mode} between {who} {number} and {server} for {0 if mode in AT_ONCE else seconds:.1f} s"

    def _patient(self) -> list[Way]:
        """Those who notice that an answer does not come though the network takes everything: workers on PostgreSQL."""
        return [each.way for each in self._workers if not isinstance(each, ServedWorker)]

    async def _strike_server(self, strike: Strike) -> str:
        self._kill(strike.kind, self._server.processes())
        await asyncio.sleep(0.2)
        await self._replace_dead()
        return "server: killed"

    async def _strike_leader(self, strike: Strike) -> str:
        """Whoever leads is killed, with all its processes."""
        pid = None
        with contextlib.suppress(Exception):  # PostgreSQL may be away
            connection = await connect(self._servers.postgres)
            try:
                pid = await connection.fetchval("SELECT pid FROM workers WHERE is_leader")
            finally:
                connection.terminate()
        leader = next((each for each in self._workers if each.pid == pid), None)
        if leader is None:
            return "leader: there was none"
        self._kill(strike.kind, leader.processes())
        await asyncio.sleep(0.2)
        await self._replace_dead()
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
        if worker is None:
            return f"{strike.kind}: nobody was there to be replaced"
        async with self._replacing:
            self._kill(strike.kind, worker.processes())
            self._workers.remove(worker)
            self._dead.append(worker)
        await self._replace_dead(clock_seconds=clock_seconds, full_disk=full_disk)
        return f"worker {worker.number}: replaced by one with its {how}"

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)


def percentile(values: list[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
