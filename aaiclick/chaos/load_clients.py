"""Load clients: submit all kinds of work over a failing network, retry until acknowledged, and record both."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar
from uuid import UUID

from aaiclick.chaos.dag_workload import DAG_NAME, TASKS_PER_RUN
from aaiclick.chaos.history import record_event
from aaiclick.chaos.servers import Route
from aaiclick.chaos.tasks import undo_step
from aaiclick.client import AsyncClient
from aaiclick.errors import ConflictError
from aaiclick.operators import map as map_rows
from aaiclick.orchestration import Group, OrchContext, Task, approval, cancel_job, create_job, pg_lifecycle, sleep
from aaiclick.orchestration.failure_paths import make_job_handlers
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.catalog.dag_sources import start_source
from aaiclick.store.engine import user_actions
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.task_options import TaskOptions

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

T = TypeVar("T")

CLIENT_EVENTS = "clients"
JOB_NAME = "chaos "
TASK_MODULE = "aaiclick.chaos.tasks"
RETRY = {"base_seconds": 0.2, "cap_seconds": 2.0}
RETRY_OPTIONS = TaskOptions(retry_policy=json.dumps(RETRY))
"""Short delays, for more attempts in less time."""
ATTEMPTS = 4
"""The default (WORKER_MAX_RETRIES = 3): more would hide outages that are charged as attempts."""
POISON_ATTEMPTS = 3
ITEMS = 50
POSTED = 10
LATER_SECONDS = 1.0
DONE, CANCELLED, POISON = "COMPLETED", "CANCELLED", "DEAD_LETTER"
SALES = 20
CLIENTS = 2
WAIT_SECONDS = 20.0
RETRIED_ERRORS = (*pg_lifecycle.OUTAGE_ERRORS, TimeoutError, ConflictError)
"""No response: the outcome is unknown. Or the first request is still in progress."""


@dataclass(frozen=True)
class JobFields:
    """Options of a job of an org other than the default one."""

    timeout_seconds: float | None = None
    pinned_version: str | None = None


NO_FIELDS = JobFields()


@dataclass
class BacklogLimiter:
    """Limits the backlog: how many unfinished tasks clients may have submitted.

    With a rate, it also limits tasks per second, whatever the number of clients.
    """

    most: int
    per_second: float = math.inf
    unfinished: int = 0
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _due: float = 0.0

    def set_unfinished(self, unfinished: int) -> None:
        """Set the current number of unfinished tasks."""
        self.unfinished = unfinished
        if unfinished < self.most:
            self._room.set()

    async def acquire(self, tasks: int) -> None:
        """Wait until these tasks may be submitted, by backlog and rate."""
        while self.unfinished >= self.most:
            self._room.clear()
            await self._room.wait()
        self.unfinished += tasks
        now = time.monotonic()
        self._due = max(self._due, now) + tasks / self.per_second  # unused rate is not accumulated
        await asyncio.sleep(self._due - now)


SHARES = {
    "items": 6, "posted": 2, "redrive": 1, "dag": 20, "cancelled": 2, "objects": 4, "values": 4, "map": 1, "grow": 2,
    "flow": 1, "workflow": 2, "saga": 1,
}  # fmt: skip
"""Workload → relative frequency; counted in tasks, items and DAGs are half each."""


@dataclass
class LoadClient:
    """A client that submits work."""

    shares: ClassVar[Mapping[str, int]] = SHARES

    number: int
    rng: random.Random
    route: Route
    history: Path
    orgs: list[UUID]
    pace: BacklogLimiter
    key: str = field(repr=False)
    submitted: int = 0
    _poison: list[int] = field(default_factory=list[int])
    _context: OrchContext = field(init=False)
    _server: AsyncClient = field(init=False)

    async def submit(self, tasks: int) -> None:
        """Submit work of about that many tasks."""
        url = f"http://127.0.0.1:{self.route.proxies['server'].port}"
        async with (
            OrchContext(endpoint=self.route.postgres) as self._context,
            AsyncClient(url, self.key, timeout_seconds=WAIT_SECONDS / 4) as self._server,
        ):
            while self.submitted < tasks:
                workload = self.rng.choices(list(self.shares), list(self.shares.values()))[0]
                count = await getattr(self, f"_submit_{workload}")(f"{self.number}-{self.submitted}")
                self.submitted += count
                await self.pace.acquire(count)

    # --- workloads ----------------------------------------------------------------------------------------------------

    async def _submit_items(self, key: str) -> int:
        """Enqueue items of one org, some failing, some scheduled for later; sometimes everything is sent twice."""
        org = self.rng.choice(self.orgs)
        specs = [(f"{key}-{i}", *self._choose_item()) for i in range(ITEMS)]
        later = {name for name, _, _ in specs if self.rng.random() < 0.05}
        run_at = datetime.now(UTC) + timedelta(seconds=LATER_SECONDS)
        record_event(
            self.history, CLIENT_EVENTS, requested="items", org=str(org), later=sorted(later),
            not_before=_earliest_start(), keys={name: POISON if body == "poison" else DONE for name, body, _ in specs},
        )  # fmt: skip
        for _ in range(2 if self.rng.random() < 0.1 else 1):
            items = [
                NewTask(
                    get_snowflake_id(), f"{TASK_MODULE}.{body}", f"{TASK_MODULE}.{body}", json.dumps(arguments),
                    idempotency_key=name,
                    options=replace(
                        RETRY_OPTIONS, max_attempts=POISON_ATTEMPTS if body == "poison" else ATTEMPTS,
                        run_at=run_at if name in later else None,
                    ),
                )
                for name, body, arguments in specs
            ]  # fmt: skip
            ids = await self._retry_until_done(lambda items=items: self._enqueue_items(items, org))
            record_event(
                self.history,
                CLIENT_EVENTS,
                acknowledged="items",
                ids=dict(zip((name for name, _, _ in specs), ids, strict=True)),
            )
            self._poison += [id_ for id_, (_, body, _) in zip(ids, specs, strict=True) if body == "poison"]
        return ITEMS

    async def _submit_posted(self, key: str) -> int:
        """Post items to the API server; only the Idempotency-Key prevents duplicates."""
        record_event(self.history, CLIENT_EVENTS, requested="posted", key=key, count=POSTED)
        item = {
            "type": f"{TASK_MODULE}.plain",
            "entrypoint": f"{TASK_MODULE}.plain",
            "payload": {"history": str(self.history)},
        }
        call = AsyncClient.enqueue.build([item] * POSTED)
        answer = await self._retry_until_done(lambda: self._server.call(call))
        record_event(self.history, CLIENT_EVENTS, acknowledged="posted", key=key, ids=answer.ids)
        return POSTED

    async def _submit_redrive(self, _: str) -> int:
        """Redrive the dead letters of this client."""

        async def redrive() -> set[int]:
            async with self._connection() as connection:
                return await user_actions.redrive_dead_letters(connection, task_ids=self._poison)

        redriven = await self._retry_until_done(redrive)
        record_event(self.history, CLIENT_EVENTS, acknowledged="redriven", ids=sorted(redriven))
        self._poison = [task_id for task_id in self._poison if task_id not in redriven]
        return 1

    def _choose_item(self) -> tuple[str, dict[str, object]]:
        chance, history = self.rng.random(), str(self.history)
        if chance < 0.005:
            return "poison", {"history": history}
        if chance < 0.03:
            return "flaky", {"history": history, "fails": 1}
        if chance < 0.06:
            return "return_value", {
                "history": history,
                "value_index": self.rng.randint(0, 4),
                "seconds": self.rng.choice((0, 0.1)),
            }
        body = "blocking" if chance < 0.1 else "plain"
        return body, {"history": history, "seconds": round(self.rng.choice((0, 0, 0, 0.01, 0.1)), 3)}

    async def _enqueue_items(self, items: list[NewTask], org: UUID) -> list[int]:
        async with self._connection() as connection:
            return await enqueue_tasks(connection, items, org)

    def _connection(self) -> AbstractAsyncContextManager[Connection]:
        return self._context.connection()

    async def _submit_dag(self, key: str) -> int:
        """Submit a source, consecutive groups with a chain inside, and a sink."""
        source, before = self._make_task("plain"), None
        tasks, groups = [source], list[Group]()
        for level in range(self.rng.randint(1, 3)):
            group = Group(f"level {level}", [self._make_task("plain") for _ in range(self.rng.randint(2, 8))])
            first, second = self._make_task("plain"), self._make_task("plain")
            group.add(first, second)
            first >> second  # pyright: ignore[reportUnusedExpression]
            (before or source) >> group  # pyright: ignore[reportUnusedExpression]
            tasks += [member for member in group.members if isinstance(member, Task)]
            groups.append(group)
            before = group
        sink = self._make_task("plain")
        assert before is not None  # noqa: S101
        before >> sink  # pyright: ignore[reportUnusedExpression]
        layers = [[source], *([member for member in g.members if isinstance(member, Task)] for g in groups), [sink]]
        edges = [(a.id, b.id) for left, right in itertools.pairwise(layers) for a in left for b in right]
        edges += [(g.members[-2].id, g.members[-1].id) for g in groups]
        return (await self._submit_job(key, [*tasks, *groups, sink], [*tasks, sink], edges))[0]

    async def _submit_cancelled(self, key: str) -> int:
        """Submit a chain and cancel it."""
        first, second = self._make_task("plain", seconds=0.1), self._make_task("plain", seconds=0.1)
        first >> second  # pyright: ignore[reportUnusedExpression]
        nodes, edges = [first, second], [(first.id, second.id)]
        total, job_id = await self._submit_job(key, [*nodes], nodes, edges, ends=[DONE, CANCELLED])
        await asyncio.sleep(0.2 * self.rng.random())
        if await self._retry_until_done(lambda: cancel_job(job_id)):
            record_event(self.history, CLIENT_EVENTS, acknowledged="cancelled", key=key)
        return total

    async def _submit_objects(self, key: str) -> int:
        """Pass a table from task to task."""
        rows = self.rng.randint(1, 2000)
        producer = self._make_task("make_object", rows=rows)
        consumer = self._make_task("check_rows", rows=producer, times=1, count=rows)
        return (await self._submit_job(key, [producer, consumer], [producer, consumer], [(producer.id, consumer.id)]))[
            0
        ]

    async def _submit_values(self, key: str) -> int:
        """Submit tasks that return values, and tasks that check them."""
        tasks, edges = list[Task](), list[tuple[int, int]]()
        for value_index in range(self.rng.randint(1, 5)):
            producer = self._make_task("return_value", value_index=value_index, seconds=self.rng.choice((0, 0, 0.2)))
            consumer = self._make_task("check_value", value=producer, value_index=value_index)
            tasks += [producer, consumer]
            edges.append((producer.id, consumer.id))
        return (await self._submit_job(key, [*tasks], tasks, edges))[0]

    async def _submit_map(self, key: str) -> int:
        """Submit a map over the table of another task, and a task that checks the result."""
        rows, chunks = self.rng.randint(500, 4000), self.rng.randint(2, 8)
        producer = self._make_task("make_object", rows=rows)
        handle = map_rows(
            f"{TASK_MODULE}.double_rows", producer, chunk_rows=rows // chunks + 1, options={"retry_policy": RETRY}
        )
        handle.options = RETRY_OPTIONS
        consumer = self._make_task("check_rows", rows=handle, times=2, count=rows)
        added = math.ceil(rows / (rows // chunks + 1)) + 1  # one per chunk, and one that combines them
        nodes = [producer, handle, consumer]
        return (await self._submit_job(key, [*nodes], nodes, [(producer.id, consumer.id)], added=added))[0]

    async def _submit_grow(self, key: str) -> int:
        """Submit a task that adds tasks."""
        width = self.rng.randint(1, 10)
        adder, last = self._make_task("add_tasks", width=width), self._make_task("plain")
        adder >> last  # pyright: ignore[reportUnusedExpression]
        return (await self._submit_job(key, [adder, last], [adder, last], [(adder.id, last.id)], added=width))[0]

    async def _submit_workflow(self, key: str) -> int:
        """Submit a branch with a join, a sleep, an approval and a child job.

        Not for the default org: its worker over HTTP cannot submit jobs.
        """
        choice, chosen, left_out = (
            self._make_task("choose_branch"),
            self._make_task("plain"),
            self._make_task("blocking"),
        )
        join, last = self._make_task("plain"), self._make_task("plain")
        join.options = replace(join.options, when="any")
        parent = self._make_task("submit_child", key=key)
        pause, question = sleep(0.2), approval(f"chaos {key}")
        choice >> [chosen, left_out] >> join  # pyright: ignore[reportUnusedExpression]
        [join, pause, question, parent] >> last  # pyright: ignore[reportUnusedExpression]
        tasks = [choice, chosen, left_out, join, pause, question, parent, last]
        edges = [(choice.id, chosen.id), (chosen.id, join.id), (join.id, last.id), (parent.id, last.id)]
        org = self.rng.choice(self.orgs[1:])
        return (await self._submit_job(key, [*tasks], tasks, edges, added=1, org=org))[0]

    async def _submit_saga(self, key: str) -> int:
        """Submit two steps, one after the other or parallel, that are undone after the failure of a third."""
        first, second = (self._make_task("run_step", key=key, number=number) for number in (1, 2))
        third = self._make_task("fail_finally")
        is_parallel = self.rng.random() < 0.5
        if is_parallel:
            [first, second] >> third  # pyright: ignore[reportUnusedExpression]
        else:
            first >> second >> third  # pyright: ignore[reportUnusedExpression]
        for step in (first, second):
            step.compensate = undo_step
        [compensator] = make_job_handlers([first, second, third], None, None)
        nodes = [first, second, third, compensator]
        edges = [(first.id, third.id if is_parallel else second.id), (second.id, third.id)]
        return (await self._submit_job(key, [*nodes], nodes, edges, added=2, ends=("FAILED",)))[0]

    async def _submit_flow(self, key: str) -> int:
        """Trigger the source of the reactive DAG."""
        first = self.submitted * SALES
        rows = [
            {
                "id": 1 + self.number + CLIENTS * (first + n),
                "day": f"2026-01-{self.rng.randint(1, 5):02}",
                "amount": self.rng.randint(1, 100),
            }
            for n in range(self.rng.randint(1, SALES))
        ]
        record_event(self.history, CLIENT_EVENTS, requested="flow", key=key, rows=rows)
        trigger = {"kind": "manual", "payload": {"rows": rows, "key": key}}

        async def fire() -> int:
            async with self._connection() as connection:
                return (await start_source(connection, DEFAULT_ORG_ID, DAG_NAME, None, trigger, idempotency_key=key))[0]

        job_id = await self._retry_until_done(fire)
        record_event(self.history, CLIENT_EVENTS, acknowledged="flow", key=key, job=job_id)
        return TASKS_PER_RUN

    def _make_task(self, body: str, **arguments: object) -> Task:
        return Task(f"{TASK_MODULE}.{body}", {"history": str(self.history), **arguments}, options=RETRY_OPTIONS)

    async def _submit_job(
        self,
        key: str,
        nodes: list[Task | Group],
        tasks: list[Task],
        edges: list[tuple[int, int]],
        *,
        added: int = 0,
        ends: Sequence[str] = (DONE,),
        org: UUID | None = None,
        finals: Sequence[str] = (),
        fields: JobFields = NO_FIELDS,
        is_sized: bool = True,
    ) -> tuple[int, int]:
        """Submit a job for some org; return its number of tasks and its id.

        `ends` are the allowed final statuses, `added` the number of tasks that its tasks add, `finals` the keys of its
        final tasks. Without `is_sized` its number of tasks is not checked.
        """
        total, org = len(tasks) + added, org or self.rng.choice(self.orgs)
        record_event(
            self.history, CLIENT_EVENTS, requested="job", key=key, tasks=[task.id for task in tasks], edges=edges,
            total=total if is_sized else None, ends=ends, org=str(org), finals=finals,
        )  # fmt: skip
        if org == DEFAULT_ORG_ID:
            job_id = await self._retry_until_done(lambda: self._create_job(f"{JOB_NAME}{key}", key, nodes))
        else:
            make = partial(self._create_for_org, f"{JOB_NAME}{key}", key, nodes, org, fields)
            job_id = await self._retry_until_done(make)
        record_event(self.history, CLIENT_EVENTS, acknowledged="job", key=key, job=job_id)
        return total, job_id

    async def _create_job(self, name: str, key: str, nodes: list[Task | Group]) -> int:
        return (await create_job(name, nodes, idempotency_key=key)).id

    async def _create_for_org(
        self, name: str, key: str, nodes: list[Task | Group], org: UUID, fields: JobFields
    ) -> int:
        """Submit a job as the API server does for a key of that org."""
        plan, names = make_plan(collect_unsubmitted(nodes))
        async with self._connection() as connection:
            job = NewJob(
                get_snowflake_id(), name, org, fields.timeout_seconds, key, pinned_version=fields.pinned_version
            )
            return await submit_job(connection, job, plan, names)

    async def _retry_until_done(self, operation: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    return await operation()
            except RETRIED_ERRORS as error:
                record_event(self.history, "trouble", client=self.number, error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.1 + 0.2 * self.rng.random())


def _earliest_start() -> float:
    """Return the earliest start of scheduled items by the histories' clock, which differs from PostgreSQL's."""
    return time.monotonic() + LATER_SECONDS - 0.1
