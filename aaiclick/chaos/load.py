"""Clients: they submit work of every kind through a network that fails, say it again until they are heard, and write
down what they meant and what they were told.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from aaiclick.chaos.flow import NAME, TASKS
from aaiclick.chaos.history import note
from aaiclick.chaos.servers import Way
from aaiclick.client import AsyncClient, calls
from aaiclick.errors import ConflictError
from aaiclick.operators import map as map_rows
from aaiclick.orchestration import Group, OrchContext, Task, cancel_job, create_job, lifecycle
from aaiclick.orchestration.planning import closure, make_plan
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import control
from aaiclick.store.catalog_sources import start_source
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.plan import NewTask
from aaiclick.store.submit import NewJob, submit_job
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

T = TypeVar("T")

FILE = "clients"
JOB_NAME = "chaos "
BODIES = "aaiclick.chaos.bodies"
RETRY = {"base_seconds": 0.2, "cap_seconds": 2.0}
"""Short delays, to find more in less time."""
ATTEMPTS = 4
"""The default (WORKER_MAX_RETRIES = 3, and the first): with more of them, outages that are charged would not show."""
POISON_ATTEMPTS = 3
ITEMS = 50
POSTED = 10
LATER_SECONDS = 1.0
DONE, CANCELLED, POISON = "COMPLETED", "CANCELLED", "DEAD_LETTER"
SALES = 20
CLIENTS = 2
WAIT_SECONDS = 20.0
AWAY = (*lifecycle.AWAY, TimeoutError, ConflictError)
"""The answer did not come: nobody knows whether it was done. Or the first request is still being answered."""


@dataclass
class Pace:
    """How far clients are ahead of workers: load without an end, and not a mountain of it.

    With a rate there is never more of it in a second than that, however many clients and however fast the machine.
    """

    most: int
    per_second: float = math.inf
    unfinished: int = 0
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _due: float = 0.0

    def counted(self, unfinished: int) -> None:
        """Somebody has counted what is not done yet."""
        self.unfinished = unfinished
        if unfinished < self.most:
            self._room.set()

    async def take(self, tasks: int) -> None:
        """These are about to be submitted; not before there is room, nor before their time has come."""
        while self.unfinished >= self.most:
            self._room.clear()
            await self._room.wait()
        self.unfinished += tasks
        now = time.monotonic()
        self._due = max(self._due, now) + tasks / self.per_second  # what was missed is not made up for
        await asyncio.sleep(self._due - now)


@dataclass
class Client:
    """One who submits."""

    number: int
    rng: random.Random
    way: Way
    history: Path
    orgs: list[UUID]
    pace: Pace
    key: str = field(repr=False)
    submitted: int = 0
    _poison: list[int] = field(default_factory=list[int])
    _context: OrchContext = field(init=False)
    _server: AsyncClient = field(init=False)

    async def submit(self, tasks: int) -> None:
        """Work of about that many tasks."""
        url = f"http://127.0.0.1:{self.way.lines['server'].port}"
        async with (
            OrchContext(target=self.way.to_postgres) as self._context,
            AsyncClient(url, self.key, timeout_seconds=WAIT_SECONDS / 4) as self._server,
        ):
            while self.submitted < tasks:
                kind = self.rng.choices(list(SHARES), list(SHARES.values()))[0]
                made = await getattr(self, f"_{kind}")(f"{self.number}-{self.submitted}")
                self.submitted += made
                await self.pace.take(made)

    # --- kinds of work ------------------------------------------------------------------------------------------------

    async def _items(self, key: str) -> int:
        """Queue items of one org, some of which fail, some for later; now and then everything is said twice."""
        org = self.rng.choice(self.orgs)
        plans = [(f"{key}-{i}", *self._item()) for i in range(ITEMS)]
        later = {name for name, _, _ in plans if self.rng.random() < 0.05}
        run_at = datetime.now(UTC) + timedelta(seconds=LATER_SECONDS)
        note(
            self.history, FILE, meant="items", org=str(org), later=sorted(later), not_before=_later(),
            keys={name: POISON if body == "poison" else DONE for name, body, _ in plans},
        )  # fmt: skip
        for _ in range(2 if self.rng.random() < 0.1 else 1):
            made = [
                NewTask(
                    get_snowflake_id(), f"{BODIES}.{body}", f"{BODIES}.{body}", json.dumps(arguments),
                    retry_policy=json.dumps(RETRY), idempotency_key=name,
                    available_at=run_at if name in later else None,
                    max_attempts=POISON_ATTEMPTS if body == "poison" else ATTEMPTS,
                )
                for name, body, arguments in plans
            ]  # fmt: skip
            ids = await self._insist(lambda made=made: self._enqueue(made, org))
            note(self.history, FILE, heard="items", ids=dict(zip((name for name, _, _ in plans), ids, strict=True)))
            self._poison += [id_ for id_, (_, body, _) in zip(ids, plans, strict=True) if body == "poison"]
        return ITEMS

    async def _posted(self, key: str) -> int:
        """Items through the API server. Nothing but the Idempotency-Key says that they were sent before."""
        note(self.history, FILE, meant="posted", key=key, count=POSTED)
        item = {"type": f"{BODIES}.plain", "entrypoint": f"{BODIES}.plain", "payload": {"history": str(self.history)}}
        call = calls.post("/v1/tasks", {"items": [item] * POSTED}, once=True)
        answer = await self._insist(lambda: self._server.call(call))
        note(self.history, FILE, heard="posted", key=key, ids=[int(each) for each in answer["ids"]])
        return POSTED

    async def _redrive(self, _: str) -> int:
        """Another chance for what never works, as far as it is dead by now."""

        async def again() -> set[int]:
            async with self._connection() as connection:
                return await control.redrive(connection, task_ids=self._poison)

        back = await self._insist(again)
        note(self.history, FILE, heard="redriven", ids=sorted(back))
        self._poison = [task_id for task_id in self._poison if task_id not in back]
        return 1

    def _item(self) -> tuple[str, dict[str, object]]:
        luck, history = self.rng.random(), str(self.history)
        if luck < 0.005:
            return "poison", {"history": history}
        if luck < 0.03:
            return "flaky", {"history": history, "fails": 1}
        if luck < 0.06:
            return "valued", {"history": history, "kind": self.rng.randint(0, 4), "seconds": self.rng.choice((0, 0.1))}
        body = "blocking" if luck < 0.1 else "plain"
        return body, {"history": history, "seconds": round(self.rng.choice((0, 0, 0, 0.01, 0.1)), 3)}

    async def _enqueue(self, made: list[NewTask], org: UUID) -> list[int]:
        async with self._connection() as connection:
            return await enqueue_tasks(connection, made, org)

    def _connection(self) -> AbstractAsyncContextManager[Connection]:
        return self._context.connection()

    async def _dag(self, key: str) -> int:
        """A source, groups one after the other with a chain inside, and a sink."""
        source, before = self._task("plain"), None
        tasks, groups = [source], list[Group]()
        for level in range(self.rng.randint(1, 3)):
            group = Group(f"level {level}", [self._task("plain") for _ in range(self.rng.randint(2, 8))])
            first, second = self._task("plain"), self._task("plain")
            group.add(first, second)
            first >> second  # pyright: ignore[reportUnusedExpression]
            (before or source) >> group  # pyright: ignore[reportUnusedExpression]
            tasks += [each for each in group.members if isinstance(each, Task)]
            groups.append(group)
            before = group
        sink = self._task("plain")
        assert before is not None  # noqa: S101
        before >> sink  # pyright: ignore[reportUnusedExpression]
        layers = [[source], *([each for each in g.members if isinstance(each, Task)] for g in groups), [sink]]
        edges = [(a.id, b.id) for left, right in itertools.pairwise(layers) for a in left for b in right]
        edges += [(g.members[-2].id, g.members[-1].id) for g in groups]
        return (await self._job(key, [*tasks, *groups, sink], [*tasks, sink], edges))[0]

    async def _cancelled(self, key: str) -> int:
        """A chain of which nobody wants the end any more."""
        first, second = self._task("plain", seconds=0.1), self._task("plain", seconds=0.1)
        first >> second  # pyright: ignore[reportUnusedExpression]
        nodes, edges = [first, second], [(first.id, second.id)]
        total, job_id = await self._job(key, [*nodes], nodes, edges, ends=[DONE, CANCELLED])
        await asyncio.sleep(0.2 * self.rng.random())
        if await self._insist(lambda: cancel_job(job_id)):
            note(self.history, FILE, heard="cancelled", key=key)
        return total

    async def _objects(self, key: str) -> int:
        """A table handed from task to task."""
        rows = self.rng.randint(1, 2000)
        made = self._task("make", rows=rows)
        looked = self._task("check", rows=made, times=1, count=rows)
        return (await self._job(key, [made, looked], [made, looked], [(made.id, looked.id)]))[0]

    async def _values(self, key: str) -> int:
        """Values that become Objects, and tasks that look at them."""
        tasks, edges = list[Task](), list[tuple[int, int]]()
        for kind in range(self.rng.randint(1, 5)):
            given = self._task("valued", kind=kind, seconds=self.rng.choice((0, 0, 0.2)))
            looked = self._task("check_value", value=given, kind=kind)
            tasks += [given, looked]
            edges.append((given.id, looked.id))
        return (await self._job(key, [*tasks], tasks, edges))[0]

    async def _map(self, key: str) -> int:
        """A map over the table of another task, and somebody who looks at all of it."""
        rows, chunks = self.rng.randint(500, 4000), self.rng.randint(2, 8)
        made = self._task("make", rows=rows)
        handle = map_rows(f"{BODIES}.doubled", made, chunk_rows=rows // chunks + 1, options={"retry_policy": RETRY})
        handle.retry_policy = RETRY
        looked = self._task("check", rows=handle, times=2, count=rows)
        added = math.ceil(rows / (rows // chunks + 1)) + 1  # one for each chunk, and one that puts them together
        nodes = [made, handle, looked]
        return (await self._job(key, [*nodes], nodes, [(made.id, looked.id)], added=added))[0]

    async def _grow(self, key: str) -> int:
        """A task that adds tasks."""
        width = self.rng.randint(1, 10)
        grown, last = self._task("grow", width=width), self._task("plain")
        grown >> last  # pyright: ignore[reportUnusedExpression]
        return (await self._job(key, [grown, last], [grown, last], [(grown.id, last.id)], added=width))[0]

    async def _flow(self, key: str) -> int:
        """The source of the reactive DAG fires."""
        first = self.submitted * SALES
        rows = [
            {
                "id": 1 + self.number + CLIENTS * (first + n),
                "day": f"2026-01-{self.rng.randint(1, 5):02}",
                "amount": self.rng.randint(1, 100),
            }
            for n in range(self.rng.randint(1, SALES))
        ]
        note(self.history, FILE, meant="flow", key=key, rows=rows)
        trigger = {"kind": "manual", "payload": {"rows": rows, "key": key}}

        async def fire() -> int:
            async with self._connection() as connection:
                return (await start_source(connection, DEFAULT_ORG_ID, NAME, None, trigger, idempotency_key=key))[0]

        job_id = await self._insist(fire)
        note(self.history, FILE, heard="flow", key=key, job=job_id)
        return TASKS

    def _task(self, body: str, **arguments: object) -> Task:
        return Task(f"{BODIES}.{body}", {"history": str(self.history), **arguments}, retry_policy=RETRY)

    async def _job(
        self,
        key: str,
        nodes: list[Task | Group],
        tasks: list[Task],
        edges: list[tuple[int, int]],
        *,
        added: int = 0,
        ends: Sequence[str] = (DONE,),
    ) -> tuple[int, int]:
        """Of some org; it `ends` as one of these, and its tasks add `added`. Returns how many that are, and its id."""
        total, org = len(tasks) + added, self.rng.choice(self.orgs)
        note(
            self.history, FILE, meant="job", key=key, tasks=[task.id for task in tasks], edges=edges, total=total,
            ends=ends, org=str(org),
        )  # fmt: skip
        make = partial(self._create if org == DEFAULT_ORG_ID else self._create_for, f"{JOB_NAME}{key}", key, nodes)
        job_id = await self._insist(lambda: make(org))
        note(self.history, FILE, heard="job", key=key, job=job_id)
        return total, job_id

    async def _create(self, name: str, key: str, nodes: list[Task | Group], _: UUID) -> int:
        return (await create_job(name, nodes, idempotency_key=key)).id

    async def _create_for(self, name: str, key: str, nodes: list[Task | Group], org: UUID) -> int:
        """As the API server does for who has a key of that org."""
        plan, names = make_plan(closure(nodes))
        async with self._connection() as connection:
            job = NewJob(get_snowflake_id(), name, org, idempotency_key=key)
            return await submit_job(connection, job, plan, names)

    async def _insist(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    return await work()
            except AWAY as error:
                note(self.history, "trouble", client=self.number, error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.1 + 0.2 * self.rng.random())


def _later() -> float:
    """When what is for later may begin at the earliest, by the clock of histories; it is not that of PostgreSQL."""
    return time.monotonic() + LATER_SECONDS - 0.1


SHARES = {
    "items": 6, "posted": 2, "redrive": 1, "dag": 20, "cancelled": 2, "objects": 4, "values": 4, "map": 1, "grow": 2,
    "flow": 1,
}  # fmt: skip
"""Kind of work → how often it comes; by tasks, items and DAGs are half each."""
