"""A separate installation for a run: servers, workers, an API server, and load clients."""

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
from aaiclick.chaos.approval_clients import decide_approvals
from aaiclick.chaos.checker import TRIGGERS
from aaiclick.chaos.dag_workload import DAG, DAG_NAME, DEFINITIONS
from aaiclick.chaos.failure_path_clients import FailureClient
from aaiclick.chaos.flow_control_clients import create_schedules, pause_schedules
from aaiclick.chaos.history import record_event
from aaiclick.chaos.incident_oracle import UNSETTLED
from aaiclick.chaos.load_clients import CLIENT_EVENTS, CLIENTS, RETRY, TASK_MODULE, BacklogLimiter
from aaiclick.chaos.notification_sinks import HOST, NotificationSinks
from aaiclick.chaos.observability_check import ApiMonitor
from aaiclick.chaos.servers import (
    CONCURRENCY,
    LEASE_SECONDS,
    ApiServer,
    ChaosWorker,
    HttpWorker,
    Program,
    Route,
    Servers,
)
from aaiclick.chaos.tcp_proxy import TcpProxy
from aaiclick.errors import StackError
from aaiclick.orchestration import OrchContext, RetryPolicy, set_retry_policy
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import CONNECTION_ERRORS, connect
from aaiclick.store.tenancy.api_keys import create_key
from aaiclick.store.tenancy.orgs import create_org

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

SERVED_WORKERS = 1
WARM_SECONDS = 120.0
PLAIN = f"{TASK_MODULE}.plain"
ACTIVE_WORKERS = "SELECT count(DISTINCT worker_id) FROM tasks WHERE status = 'COMPLETED'"
SUPERVISE_SECONDS = 1.0
COUNT_SECONDS = 0.5
ORGS = 3
MAX_BACKLOG = 3000
"""Most unfinished tasks that clients have submitted."""

UNFINISHED = """
    SELECT (SELECT count(*) FROM tasks WHERE completed_at IS NULL)
        + (SELECT count(*) FROM jobs WHERE completed_at IS NULL)
"""


class ChaosEnvironment:
    """`async with ChaosEnvironment(directory, workers, seed) as environment:` — everything is removed afterwards."""

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
        self.workers: list[ChaosWorker] = []
        self.dead: list[Program] = []
        self.clients: list[FailureClient] = []
        self.frozen: set[int] = set()
        self.skipped: set[str] = set()
        self.workers_lock = asyncio.Lock()
        self.warm_up_tasks = 0
        self._variables = {"AAICLICK_PRIVATE_HOSTS": HOST}
        if keep_seconds is not None:
            self._variables["AAICLICK_RETENTION"] = str(keep_seconds)
        self.sinks = NotificationSinks(self.history)
        self._worker_count = workers
        self._seed = seed
        self._key = ""
        self._started = 0
        self._limiter = BacklogLimiter(MAX_BACKLOG, per_second)
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start_programs()
        except BaseException:
            await self._stop_programs()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop_programs()

    async def _start_programs(self) -> None:
        await self.servers.start()
        connection = await connect(self.servers.postgres)
        try:
            await connection.execute(TRIGGERS)
            orgs = [DEFAULT_ORG_ID, *await self._make_orgs(connection)]
            await self.sinks.start()
            await self.sinks.set_rules(connection, orgs)
            await deploy(connection, DAG)
            async with OrchContext(endpoint=self.servers.postgres):
                for definition in DEFINITIONS:
                    await set_retry_policy(f"{DAG_NAME}.{definition}", RetryPolicy(**RETRY))
            api_key = await create_key(connection, org_id=DEFAULT_ORG_ID, name="chaos", scopes=["worker", "writer"])
            self._key = api_key.text
        finally:
            await connection.close()
        self.server = ApiServer(self.directory, await Route.make(self.servers), self._variables)
        self.dead.append(self.server)  # killed together with them
        self.server.start()
        await self.replace_dead()
        for number in range(CLIENTS):
            rng = random.Random(f"{self._seed}/client {number}")  # noqa: S311
            route = await Route.make(self.servers, data=False)
            await route.add("server", TcpProxy(("127.0.0.1", self.server.port)))
            self.clients.append(FailureClient(number, rng, route, self.history, orgs, self._limiter, self._key))
        approvers = decide_approvals(self.servers.postgres, orgs, self.history)
        background = (self._supervise_programs(), self._count_backlog(), approvers)
        self._background = [asyncio.create_task(coroutine) for coroutine in background]

    async def _make_orgs(self, connection: Connection) -> list[UUID]:
        return [(await create_org(connection, name=f"Org {n}", slug=f"org{n}")).id for n in range(1, ORGS)]

    def make_monitor(self) -> ApiMonitor:
        """Return a monitor of the API server."""
        return ApiMonitor(f"http://127.0.0.1:{self.server.port}", self._key)

    async def _stop_programs(self) -> None:
        await self.stop_supervision()
        for worker in self.workers:
            _resume_processes(worker)
        for program in [*self.workers, *self.dead]:
            await program.kill_all()
        for client in self.clients:
            await client.route.close()
        await self.sinks.stop()
        await asyncio.to_thread(self.servers.stop)

    async def stop_supervision(self) -> None:
        """Stop restarting workers and counting the backlog."""
        tasks, self._background = self._background, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- load ---------------------------------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        """Wait until every worker has completed a task, so that start-up time does not count."""
        connection = await connect(self.servers.postgres)
        try:
            count = 2 * CONCURRENCY * (self._worker_count + SERVED_WORKERS)  # more than the fastest worker can take
            async with asyncio.timeout(WARM_SECONDS):
                while await connection.fetchval(ACTIVE_WORKERS) < self._worker_count + SERVED_WORKERS:
                    arguments = json.dumps({"history": str(self.history), "seconds": 0.2})
                    tasks = [NewTask(get_snowflake_id(), PLAIN, PLAIN, arguments) for _ in range(count)]
                    record_event(self.history, CLIENT_EVENTS, requested="tasks", ids=[task.id for task in tasks])
                    await enqueue_tasks(connection, tasks)
                    self.warm_up_tasks += len(tasks)
                    await asyncio.sleep(1.0)
        except TimeoutError:
            raise StackError(
                f"Some workers completed no task within {WARM_SECONDS:.0f} s.",
                remedy="Use fewer --workers, or keep their logs with --keep DIRECTORY.",
            ) from None
        finally:
            await connection.close()

    async def run_load(self, tasks: int) -> None:
        """Submit about that many tasks; ends when all are accepted, or with the error of a client.

        Schedules start runs meanwhile.
        """
        org = self.clients[0].orgs[1]
        await create_schedules(self.servers.postgres, org, str(self.history))
        await self.submit_all(tasks)
        await pause_schedules(self.servers.postgres, org)

    async def submit_all(self, tasks: int) -> None:
        """Submit about that many tasks by all clients at once."""
        async with asyncio.TaskGroup() as group:
            for client in self.clients:
                group.create_task(client.submit(tasks // CLIENTS))

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing is unfinished or has to be delivered; return False after the timeout."""
        deadline = time.monotonic() + seconds
        while await self._query_count(UNFINISHED) != 0 or await self._query_count(UNSETTLED) != 0:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.2)
        return True

    async def _query_count(self, query: str) -> int | None:
        """Return the result of a query that counts; None if PostgreSQL is unreachable."""
        with contextlib.suppress(*CONNECTION_ERRORS):  # an outage: the caller retries
            connection = await connect(self.servers.postgres)
            try:
                return await connection.fetchval(query)
            finally:
                connection.terminate()
        return None

    async def _count_backlog(self) -> None:
        while True:
            unfinished = await self._query_count(UNFINISHED)
            if unfinished is not None:
                self._limiter.set_unfinished(unfinished)
            await asyncio.sleep(COUNT_SECONDS)

    # --- workers ------------------------------------------------------------------------------------------------------

    async def _add_worker(self, *, over_http: bool, clock_seconds: float, full_disk: bool) -> ChaosWorker:
        self._started += 1
        route = await Route.make(self.servers, self.server.port if over_http else None, data=not over_http)
        common = self._started, self.directory, route, self._variables
        worker = HttpWorker(*common, self._key) if over_http else ChaosWorker(*common)
        worker.start(clock_seconds=clock_seconds, full_disk=full_disk)
        self.workers.append(worker)
        return worker

    async def replace_dead(self) -> None:
        """Restart missing workers and the API server."""
        async with self.workers_lock:
            await self.fill_workers()

    async def fill_workers(
        self, *, replaced: ChaosWorker | None = None, clock_seconds: float = 0.0, full_disk: bool = False
    ) -> list[ChaosWorker]:
        """Like replace_dead, for the holder of `workers_lock`; return the workers that were started."""
        for worker in [candidate for candidate in self.workers if candidate is replaced or not candidate.alive]:
            self.workers.remove(worker)
            self.dead.append(worker)
        if not self.server.alive:
            self.server.start()
        http_workers = sum(isinstance(candidate, HttpWorker) for candidate in self.workers)
        missing = [False] * (self._worker_count - len(self.workers) + http_workers)
        return [
            await self._add_worker(over_http=over_http, clock_seconds=clock_seconds, full_disk=full_disk)
            for over_http in [*missing, *[True] * (SERVED_WORKERS - http_workers)]
        ]

    async def _supervise_programs(self) -> None:
        """Restart programs, as a process manager does. A worker exits if PostgreSQL is unreachable at its start."""
        while True:
            await asyncio.sleep(SUPERVISE_SECONDS)
            for program in (*self.workers, self.server):
                program.processes()  # records them for list_remaining
            await self.replace_dead()

    async def restore(self) -> None:
        """Resume suspended workers and restart missing ones."""
        for worker in self.workers:
            _resume_processes(worker)
        self.frozen.clear()
        await self.replace_dead()

    async def stop_workers(self) -> list[int]:
        """Stop workers and the API server; return processes that outlived their supervisor."""
        await self.stop_supervision()
        await self.restore()
        for program in (*self.workers, self.server):
            await program.stop()
        self.dead += self.workers
        self.workers.clear()
        deadline = time.monotonic() + 2 * LEASE_SECONDS  # they may wait for their leases to end
        while True:
            remaining = [pid for program in self.dead for pid in program.list_remaining()]
            if not remaining or time.monotonic() > deadline:
                return remaining
            await asyncio.sleep(0.1)


def _resume_processes(worker: Program) -> None:
    for process in worker.processes():
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)
