"""An installation of a run's own: servers, workers, an API server, and clients that load them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self
from uuid import UUID

import psutil

from aaiclick.catalog.deploy import deploy
from aaiclick.chaos.checker import WATCH
from aaiclick.chaos.flow import DAG, JOBS, NAME
from aaiclick.chaos.history import note
from aaiclick.chaos.load import BODIES, CLIENTS, FILE, RETRY, Client, Pace
from aaiclick.chaos.proxy import Proxy
from aaiclick.chaos.servers import CONCURRENCY, LEASE_SECONDS, ApiServer, Program, ServedWorker, Servers, Way, Worker
from aaiclick.chaos.watch import Watch
from aaiclick.errors import StackError
from aaiclick.orchestration import OrchContext, RetryPolicy, set_retry_policy
from aaiclick.orchestration.transport.line import GONE
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import connect
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.keys import create_key
from aaiclick.store.orgs import create_org
from aaiclick.store.plan import NewTask
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

SERVED_WORKERS = 1
WARM_SECONDS = 120.0
PLAIN = f"{BODIES}.plain"
AT_WORK = "SELECT count(DISTINCT worker_id) FROM tasks WHERE status = 'COMPLETED'"
MIND_SECONDS = 1.0
COUNT_SECONDS = 0.5
ORGS = 3
AHEAD = 3000
"""Tasks that clients are ahead of workers at most."""

UNFINISHED = """
    SELECT (SELECT count(*) FROM tasks WHERE completed_at IS NULL)
        + (SELECT count(*) FROM jobs WHERE completed_at IS NULL)
"""


class Scene:
    """`async with Scene(directory, workers, seed) as scene:` — nothing of it is left afterwards."""

    def __init__(
        self,
        directory: Path,
        workers: int,
        seed: int,
        *,
        keep_seconds: float | None = None,
        per_second: float = math.inf,
    ) -> None:
        self.directory = directory
        self.history = directory / "history"
        self.history.mkdir(parents=True)
        self.servers = Servers(directory)
        self.server: ApiServer
        self.workers: list[Worker] = []
        self.dead: list[Program] = []
        self.clients: list[Client] = []
        self.frozen: set[int] = set()
        self.skipped: set[str] = set()
        self.changing = asyncio.Lock()
        self.warmed_up_by = 0
        self._variables = {} if keep_seconds is None else {"AAICLICK_RETENTION": str(keep_seconds)}
        self._wanted = workers
        self._seed = seed
        self._key = ""
        self._started = 0
        self._pace = Pace(AHEAD, per_second)
        self._beside: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _start(self) -> None:
        await self.servers.start()
        connection = await connect(self.servers.postgres)
        try:
            await connection.execute(WATCH)
            orgs = [DEFAULT_ORG_ID, *await self._make_orgs(connection)]
            await deploy(connection, DAG)
            async with OrchContext(target=self.servers.postgres):
                for job in JOBS:
                    await set_retry_policy(f"{NAME}.{job}", RetryPolicy(**RETRY))
            made = await create_key(connection, org_id=DEFAULT_ORG_ID, name="chaos", scopes=["worker", "writer"])
            self._key = made.text
        finally:
            await connection.close()
        self.server = ApiServer(self.directory, await Way.make(self.servers), self._variables)
        self.dead.append(self.server)  # to be cleared with them
        self.server.start()
        await self.replace_dead()
        for number in range(CLIENTS):
            rng = random.Random(f"{self._seed}/client {number}")  # noqa: S311
            way = await Way.make(self.servers, data=False)
            await way.add("server", Proxy(("127.0.0.1", self.server.port)))
            self.clients.append(Client(number, rng, way, self.history, orgs, self._pace, self._key))
        self._beside = [asyncio.create_task(self._mind()), asyncio.create_task(self._count())]

    async def _make_orgs(self, connection: Connection) -> list[UUID]:
        return [(await create_org(connection, name=f"Org {n}", slug=f"org{n}"))["id"] for n in range(1, ORGS)]

    def watch(self) -> Watch:
        """A watch on the API server."""
        return Watch(f"http://127.0.0.1:{self.server.port}", self._key)

    async def _close(self) -> None:
        await self.stop_minding()
        for worker in self.workers:
            _thaw(worker)
        for program in [*self.workers, *self.dead]:
            await program.clear()
        for client in self.clients:
            await client.way.close()
        await asyncio.to_thread(self.servers.stop)

    async def stop_minding(self) -> None:
        """From now on nobody starts workers again."""
        beside, self._beside = self._beside, []
        for work in beside:
            work.cancel()
        await asyncio.gather(*beside, return_exceptions=True)

    # --- work ---------------------------------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        """Until every worker has done something: how long they take to start says nothing about how fast they are."""
        connection = await connect(self.servers.postgres)
        try:
            count = 2 * CONCURRENCY * (self._wanted + SERVED_WORKERS)  # more than the quickest can take
            async with asyncio.timeout(WARM_SECONDS):
                while await connection.fetchval(AT_WORK) < self._wanted + SERVED_WORKERS:
                    arguments = json.dumps({"history": str(self.history), "seconds": 0.2})
                    made = [NewTask(get_snowflake_id(), PLAIN, PLAIN, arguments) for _ in range(count)]
                    note(self.history, FILE, meant="tasks", ids=[task.id for task in made])
                    await enqueue_tasks(connection, made)
                    self.warmed_up_by += len(made)
                    await asyncio.sleep(1.0)
        except TimeoutError:
            raise StackError(
                f"Some workers of this run have done nothing within {WARM_SECONDS:.0f} s.",
                remedy="Ask for fewer --workers, or look at their logs: --keep DIRECTORY.",
            ) from None
        finally:
            await connection.close()

    async def load(self, tasks: int) -> None:
        """Submit about that many tasks; ends when all are accepted, or when a client hears what it cannot expect."""
        async with asyncio.TaskGroup() as together:
            for client in self.clients:
                together.create_task(client.submit(tasks // CLIENTS))

    async def rests(self, seconds: float) -> bool:
        """Whether nothing is left to be done within some time."""
        deadline = time.monotonic() + seconds
        while await self._unfinished() != 0:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.2)
        return True

    async def _unfinished(self) -> int | None:
        """How much is not done; None if PostgreSQL does not say."""
        with contextlib.suppress(*GONE):  # it may be away: look again
            connection = await connect(self.servers.postgres)
            try:
                return await connection.fetchval(UNFINISHED)
            finally:
                connection.terminate()
        return None

    async def _count(self) -> None:
        while True:
            unfinished = await self._unfinished()
            if unfinished is not None:
                self._pace.counted(unfinished)
            await asyncio.sleep(COUNT_SECONDS)

    # --- workers ------------------------------------------------------------------------------------------------------

    async def _add_worker(self, *, served: bool, clock_seconds: float, full_disk: bool) -> Worker:
        self._started += 1
        way = await Way.make(self.servers, self.server.port if served else None, data=not served)
        of = self._started, self.directory, way, self._variables
        worker = ServedWorker(*of, self._key) if served else Worker(*of)
        worker.start(clock_seconds=clock_seconds, full_disk=full_disk)
        self.workers.append(worker)
        return worker

    async def replace_dead(self) -> None:
        """As many workers as there should be, and the API server."""
        async with self.changing:
            await self.fill()

    async def fill(
        self, *, without: Worker | None = None, clock_seconds: float = 0.0, full_disk: bool = False
    ) -> list[Worker]:
        """The same for who holds `changing`; returns the workers that it started."""
        for worker in [each for each in self.workers if each is without or not each.alive]:
            self.workers.remove(worker)
            self.dead.append(worker)
        if not self.server.alive:
            self.server.start()
        served = sum(isinstance(each, ServedWorker) for each in self.workers)
        missing = [False] * (self._wanted - len(self.workers) + served)
        return [
            await self._add_worker(served=kind, clock_seconds=clock_seconds, full_disk=full_disk)
            for kind in [*missing, *[True] * (SERVED_WORKERS - served)]
        ]

    async def _mind(self) -> None:
        """What every installation has: somebody who starts workers again. One that finds no PostgreSQL ends at once."""
        while True:
            await asyncio.sleep(MIND_SECONDS)
            for program in (*self.workers, self.server):
                program.processes()  # it remembers them
            await self.replace_dead()

    async def calm(self) -> None:
        """Let everything live: what is frozen goes on, and there are as many workers as there should be."""
        for worker in self.workers:
            _thaw(worker)
        self.frozen.clear()
        await self.replace_dead()

    async def stop_workers(self) -> list[int]:
        """In good order, and the API server; returns processes that did not end with their supervisor."""
        await self.stop_minding()
        await self.calm()
        for program in (*self.workers, self.server):
            await program.stop()
        self.dead += self.workers
        self.workers.clear()
        deadline = time.monotonic() + 2 * LEASE_SECONDS  # they may take as long as their leases last
        while True:
            left = [pid for program in self.dead for pid in program.left()]
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(0.1)


def _thaw(worker: Program) -> None:
    for process in worker.processes():
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)
