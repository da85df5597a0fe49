"""Injection of each kind of fault into the environment."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence

import psutil

from aaiclick.chaos.environment import ChaosEnvironment
from aaiclick.chaos.fault_schedule import ScheduledFault
from aaiclick.chaos.history import record_event
from aaiclick.chaos.servers import LEASE_SECONDS, ChaosWorker, HttpWorker, Route
from aaiclick.chaos.tcp_proxy import INSTANT_MODES, MODES
from aaiclick.store.postgres_connections import CONNECTION_ERRORS, connect

MAX_TRIES = 4
RETRY_SECONDS = 0.5
NO_MOUNT = "no permission to mount a small disk"


class FaultNotInjected(Exception):  # noqa: N818
    """The fault had no target; with `again`, a later try may find one."""

    def __init__(self, reason: str, *, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


class FaultInjector:
    """Injects the faults of a schedule and counts them."""

    def __init__(self, environment: ChaosEnvironment, log: Callable[[str], None]) -> None:
        self._environment = environment
        self._log = log
        self._pending: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def run(self, faults: Sequence[ScheduledFault]) -> None:
        """Inject the faults one after the other, each at its time."""
        started_at = time.monotonic()
        try:
            for fault in faults:
                await asyncio.sleep(max(0.0, fault.at_seconds - (time.monotonic() - started_at)))
                self._log(f"{fault.at_seconds:6.1f} s  {await self._inject(fault)}")
        finally:
            for task in self._pending:
                task.cancel()
            await asyncio.gather(*self._pending, return_exceptions=True)

    async def _inject(self, fault: ScheduledFault) -> str:
        """Inject a fault and describe it. Without a target it is retried for a moment, then not counted."""
        message = ""
        for _ in range(MAX_TRIES):
            try:
                message = await getattr(self, f"_inject_{fault.kind}")(fault)
            except FaultNotInjected as error:
                message = f"{fault.kind}: {error}"
                if not error.again:
                    break
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.counts[fault.kind] += 1
                break
        return message

    def _choose_worker(self, fault: ScheduledFault) -> ChaosWorker:
        candidates = [
            worker
            for worker in self._environment.workers
            if worker.alive and worker.number not in self._environment.frozen
        ]
        if not candidates:
            raise FaultNotInjected("no worker was running")
        return fault.make_rng().choice(candidates)

    async def _inject_worker(self, fault: ScheduledFault) -> str:
        """Kill a worker process, its supervisor, or both."""
        worker = self._choose_worker(fault)
        supervisor, *children = worker.processes() or [None]
        victims = {"process": children, "supervisor": [supervisor], "all": [supervisor, *children]}
        target = fault.make_rng().choice(list(victims))
        self._kill_processes(fault.kind, [process for process in victims[target] if process is not None])
        await asyncio.sleep(0.2)
        await self._environment.replace_dead()
        return f"worker {worker.number}: {target} killed"

    def _kill_processes(self, fault_kind: str, processes: list[psutil.Process]) -> None:
        if not processes:
            raise FaultNotInjected("no process to kill")
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        record_event(
            self._environment.history, "faults", kind=fault_kind, killed=[process.pid for process in processes]
        )

    async def _inject_zombie(self, fault: ScheduledFault) -> str:
        """Suspend a worker for longer than its lease, then resume it."""
        worker = self._choose_worker(fault)
        processes = worker.processes()
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        self._environment.frozen.add(worker.number)
        seconds = LEASE_SECONDS + fault.make_rng().uniform(1, 4)
        record_event(
            self._environment.history,
            "faults",
            kind="zombie",
            frozen=[process.pid for process in processes],
            seconds=seconds,
        )

        async def wake() -> None:
            await asyncio.sleep(seconds)
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.resume()
            self._environment.frozen.discard(worker.number)

        self._run_in_background(wake())
        return f"worker {worker.number}: frozen for {seconds:.1f} s, past its lease"

    async def _inject_postgres(self, _: ScheduledFault) -> str:
        return await self._kill_server("postgres")

    async def _inject_clickhouse(self, _: ScheduledFault) -> str:
        return await self._kill_server("clickhouse")

    async def _kill_server(self, name: str) -> str:
        if not await asyncio.to_thread(self._environment.servers.kill, name):
            raise FaultNotInjected("was down")
        return f"{name}: killed"

    async def _inject_network(self, fault: ScheduledFault) -> str:
        """Disturb one connection between a program and a server."""
        rng = fault.make_rng()
        owner, route = rng.choice(self._list_routes())
        server = rng.choice([name for name in ("queue", "queue", "clickhouse", "server") if name in route.proxies])
        proxy, mode = route.proxies[server], rng.choice(MODES)
        if mode == "forgotten" and (server != "queue" or route not in self._routes_with_timeouts()):
            mode = "reset"
        seconds = rng.uniform(0.5, 1.5 * LEASE_SECONDS)
        self._run_in_background(proxy.inject(mode, seconds))
        return f"network: {mode} between {owner} and {server} for {0 if mode in INSTANT_MODES else seconds:.1f} s"

    def _list_routes(self) -> list[tuple[str, Route]]:
        """Return the routes of all programs, preferably those without a current fault."""
        routes = [(f"client {client.number}", client.route) for client in self._environment.clients]
        routes += [(f"worker {worker.number}", worker.route) for worker in self._environment.workers]
        routes.append(("server 1", self._environment.server.route))
        return [
            (owner, route) for owner, route in routes if all(proxy.mode == "pass" for proxy in route.proxies.values())
        ] or routes

    def _routes_with_timeouts(self) -> list[Route]:
        """Return the routes of workers on PostgreSQL, which detect a missing response by a timeout."""
        return [worker.route for worker in self._environment.workers if not isinstance(worker, HttpWorker)]

    async def _inject_server(self, fault: ScheduledFault) -> str:
        self._kill_processes(fault.kind, self._environment.server.processes())
        await asyncio.sleep(0.2)
        await self._environment.replace_dead()
        return "server: killed"

    async def _inject_leader(self, fault: ScheduledFault) -> str:
        """Kill the leader with all its processes."""
        pid = None
        with contextlib.suppress(*CONNECTION_ERRORS):  # PostgreSQL may be down
            connection = await connect(self._environment.servers.postgres)
            try:
                pid = await connection.fetchval("SELECT pid FROM workers WHERE is_leader")
            finally:
                connection.terminate()
        leader = next((worker for worker in self._environment.workers if worker.pid == pid), None)
        if leader is None:
            raise FaultNotInjected("there was no leader")
        self._kill_processes(fault.kind, leader.processes())
        await asyncio.sleep(0.2)
        await self._environment.replace_dead()
        return f"leader: worker {leader.number} killed"

    async def _inject_clock(self, fault: ScheduledFault) -> str:
        """Replace a worker by one with a clock that is wrong by up to a day."""
        offset = fault.make_rng().choice((-1, 1)) * fault.make_rng().uniform(60, 86_400)
        return await self._replace_worker(fault, f"clock wrong by {offset:+,.0f} s", clock_seconds=offset)

    async def _inject_disk(self, fault: ScheduledFault) -> str:
        """Replace a worker by one with a log disk that fills up at once."""
        return await self._replace_worker(fault, "disk full", full_disk=True)

    async def _replace_worker(
        self, fault: ScheduledFault, condition: str, *, clock_seconds: float = 0.0, full_disk: bool = False
    ) -> str:
        worker = self._choose_worker(fault)
        async with self._environment.workers_lock:
            self._kill_processes(fault.kind, worker.processes())
            started = await self._environment.fill_workers(
                replaced=worker, clock_seconds=clock_seconds, full_disk=full_disk
            )
        if full_disk and not any(replacement.has_full_disk for replacement in started):
            self._environment.skipped.add(f"disk: {NO_MOUNT}")
            raise FaultNotInjected(NO_MOUNT, again=False)
        return f"worker {worker.number}: replaced by one with its {condition}"

    def _run_in_background(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
