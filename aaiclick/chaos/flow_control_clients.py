"""Load of flow control: waits, final tasks, limited jobs, rates, debounced items, batches, caches and schedules."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from aaiclick.chaos.history import record_event
from aaiclick.chaos.load_clients import (
    ATTEMPTS,
    CANCELLED,
    CLIENT_EVENTS,
    DONE,
    JOB_NAME,
    POISON,
    POISON_ATTEMPTS,
    RETRY_OPTIONS,
    SHARES,
    TASK_MODULE,
    LoadClient,
)
from aaiclick.chaos.tasks import BATCH_TYPE, ITEM_TYPE, note_failure, run_final
from aaiclick.orchestration import Group, wait_for_event, wait_for_job
from aaiclick.orchestration.failure_paths import make_job_handlers
from aaiclick.orchestration.schedule_spec import ScheduleSpec
from aaiclick.orchestration.schedules import NewSchedule, save_schedule
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.enqueue import Debounce, enqueue_debounced
from aaiclick.store.engine.schedules import pause_schedule
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.engine.waits import send_event
from aaiclick.store.enums import WhenBusy
from aaiclick.store.job_policy import JobPolicy
from aaiclick.store.postgres_connections import CONNECTION_ERRORS, connect

if TYPE_CHECKING:
    from aaiclick.server_addresses import PostgresEndpoint

RATE, RATE_KEY = "20/2", "chaos"
RATED_ITEMS = 30
BATCH_ITEMS = 20
LIMITED_JOBS: Mapping[WhenBusy, int] = {"queue": 4, "skip": 2, "keep_newest": 2, "cancel_running": 1}
WHEN_BUSY = list(LIMITED_JOBS)
REPLACING = ("keep_newest", "cancel_running")
LIMITED_NAME = f"{JOB_NAME}limited"
SCHEDULE_SECONDS = 5
RETRY_SECONDS = 0.5
SCHEDULES = ("chaos job", "chaos item")


@dataclass
class FlowClient(LoadClient):
    """A load client that submits work with waits, limits and schedules too; not for the default org."""

    shares: ClassVar[Mapping[str, int]] = SHARES | {
        "waits": 3, "limited": 2, "rated": 1, "debounced": 4, "merged": 4, "batch": 1, "cached": 3,
    }  # fmt: skip

    _debounced: int = field(default=0, init=False)

    async def _submit_waits(self, key: str) -> int:
        """Submit waits for an event and for a job, a sensor, a task that may fail, and handlers of the whole job."""
        org = self.rng.choice(self.orgs[1:])
        awaited = self._make_task("plain", seconds=0.1)
        count, awaited_id = await self._submit_job(f"{key}-awaited", [awaited], [awaited], [], org=org)
        is_before = self.rng.random() < 0.5
        if is_before:
            await self._send(key, org)
        event, ended = wait_for_event("chaos", key=key), wait_for_job(awaited_id)
        check, poll = self._make_task("check_event", payload=event, key=key), self._make_task("poll", polls=3)
        optional, last = self._make_task("fail_finally"), self._make_task("plain")
        optional.options = replace(optional.options, critical=False)
        absent = wait_for_event("absent", key=key, timeout_seconds=1.0, default={"key": key})
        check_default = self._make_task("check_event", payload=absent, key=key)
        group_final = self._make_task("run_final", key=f"{key}-group")
        group = Group("steps", [poll, optional], finally_=group_final)
        [check, check_default, group, ended] >> last  # pyright: ignore[reportUnusedExpression]
        tasks = [event, ended, check, absent, check_default, poll, optional, group_final, last]
        arguments = {"history": str(self.history), "key": key}
        handlers = make_job_handlers(tasks, run_final, note_failure, arguments)
        edges = [(check.id, last.id), (check_default.id, last.id), (poll.id, last.id), (poll.id, group_final.id)]
        nodes, finals = [*tasks, *handlers], (key, f"{key}-group")
        total, _ = await self._submit_job(key, [*nodes, group], nodes, edges, org=org, finals=finals)
        if not is_before:
            await self._send(key, org)
        return count + total

    async def _send(self, key: str, org: UUID) -> None:
        """Send an event; a repetition after a lost answer is a second event, which ends no other wait."""

        async def send() -> None:
            async with self._connection() as connection:
                await send_event(connection, org, "chaos", key, json.dumps({"key": key}), keep_seconds=3600.0)

        await self._retry_until_done(send)

    async def _submit_limited(self, key: str) -> int:
        """Submit a job of which only some run at the same time; others wait, replace others, or are not started."""
        work, last = self._make_task("plain", seconds=0.1), self._make_task("plain")
        work >> last  # pyright: ignore[reportUnusedExpression]
        plan, names = make_plan(collect_unsubmitted([work, last]))
        org, when_busy = self.orgs[1], self.rng.choice(WHEN_BUSY)
        record_event(
            self.history, CLIENT_EVENTS, requested="job", key=key, tasks=[work.id, last.id], edges=[(work.id, last.id)],
            total=None, ends=(DONE, CANCELLED) if when_busy in REPLACING else (DONE,), org=str(org),
        )  # fmt: skip
        trigger, new_id = json.dumps({"kind": "manual", "payload": {"key": key}}), get_snowflake_id()

        async def submit() -> int:
            policy, name = JobPolicy(LIMITED_JOBS[when_busy], when_busy), f"{LIMITED_NAME} {when_busy}"
            job = NewJob(new_id, name, org, idempotency_key=key, trigger=trigger, policy=policy)
            async with self._connection() as connection:
                return await submit_job(connection, job, plan, names)

        job_id = await self._retry_until_done(submit)
        if job_id == new_id or when_busy != "skip":
            record_event(self.history, CLIENT_EVENTS, acknowledged="job", key=key, job=job_id)
        return 3

    async def _submit_rated(self, key: str) -> int:
        """Enqueue items of one rate."""
        options = replace(RETRY_OPTIONS, max_attempts=ATTEMPTS, rate=RATE, rate_key=RATE_KEY)
        arguments = json.dumps({"history": str(self.history)})
        names = {f"{key}-{n}": DONE for n in range(RATED_ITEMS)}
        body = f"{TASK_MODULE}.plain"
        await self._enqueue_named(names, [(body, body, arguments, options)] * RATED_ITEMS)
        return RATED_ITEMS

    async def _submit_batch(self, key: str) -> int:
        """Enqueue items for a batch handler, which refuses one of them."""
        refused = self.rng.randrange(BATCH_ITEMS)
        names = {f"{key}-{n}": POISON if n == refused else DONE for n in range(BATCH_ITEMS)}
        options = [
            replace(RETRY_OPTIONS, max_attempts=POISON_ATTEMPTS if n == refused else ATTEMPTS)
            for n in range(BATCH_ITEMS)
        ]
        arguments = [
            json.dumps({"history": str(self.history), "name": name, "is_valid": status == DONE})
            for name, status in names.items()
        ]
        items = [(BATCH_TYPE, None, *columns) for columns in zip(arguments, options, strict=True)]
        await self._enqueue_named(names, items)
        return BATCH_ITEMS

    async def _enqueue_named(
        self, names: Mapping[str, str], items: Sequence[tuple[str, str | None, str, object]]
    ) -> None:
        """Enqueue items with keys; sometimes everything is sent twice."""
        org = self.orgs[1]
        record_event(self.history, CLIENT_EVENTS, requested="items", org=str(org), keys=dict(names))
        for _ in range(2 if self.rng.random() < 0.1 else 1):
            tasks = [
                NewTask(get_snowflake_id(), type_, entrypoint, arguments, idempotency_key=name, options=options)  # pyright: ignore[reportArgumentType]
                for name, (type_, entrypoint, arguments, options) in zip(names, items, strict=True)
            ]
            ids = await self._retry_until_done(lambda tasks=tasks: self._enqueue_items(tasks, org))
            record_event(self.history, CLIENT_EVENTS, acknowledged="items", ids=dict(zip(names, ids, strict=True)))

    async def _submit_debounced(self, _: str) -> int:
        """Enqueue a payload that replaces the waiting one of this client."""
        self._debounced += 1
        key, number = f"client {self.number}", self._debounced
        arguments = json.dumps({"history": str(self.history), "key": key, "number": number})
        body = f"{TASK_MODULE}.run_debounced"

        async def enqueue() -> int:
            task = NewTask(get_snowflake_id(), body, body, arguments, options=RETRY_OPTIONS)
            async with self._connection() as connection:
                return await enqueue_debounced(connection, task, Debounce(1.0, key), self.orgs[1])

        await self._retry_until_done(enqueue)
        record_event(self.history, CLIENT_EVENTS, acknowledged="debounced", key=key, number=number)
        return 1

    async def _submit_merged(self, _: str) -> int:
        """Enqueue a payload that is added to the waiting one of this client: none is lost."""
        self._debounced += 1
        key, number = f"merged {self.number}", self._debounced
        arguments = json.dumps({"history": str(self.history), "key": key, f"number_{number}": number})
        body = f"{TASK_MODULE}.run_merged"

        async def enqueue() -> int:
            task = NewTask(get_snowflake_id(), body, body, arguments, options=RETRY_OPTIONS)
            async with self._connection() as connection:
                return await enqueue_debounced(connection, task, Debounce(1.0, key, is_merged=True), self.orgs[1])

        await self._retry_until_done(enqueue)
        record_event(self.history, CLIENT_EVENTS, acknowledged="merged", key=key, number=number)
        return 1

    async def _submit_cached(self, key: str) -> int:
        """Submit a task with a cached result, and one that checks the result."""
        value_index = self.rng.randint(0, 4)
        producer = self._make_task("cached_value", value_index=value_index)
        consumer = self._make_task("check_value", value=producer, value_index=value_index)
        nodes = [producer, consumer]
        return (await self._submit_job(key, [*nodes], nodes, [(producer.id, consumer.id)], org=self.orgs[1]))[0]


async def create_schedules(postgres: PostgresEndpoint, org: UUID, history: str) -> None:
    """Schedule a job and an item every few seconds; every missed run is started."""
    spec = ScheduleSpec.parse(None, f"{SCHEDULE_SECONDS}s", missed="all", max_missed=10_000, overlap="allow")
    job, item = SCHEDULES
    body, arguments = f"{TASK_MODULE}.plain", {"history": history}
    connection = await connect(postgres)
    try:
        new = NewSchedule(job, spec, body, job, kwargs=arguments, options=RETRY_OPTIONS)
        await save_schedule(connection, org, new, replace=True)
        new = NewSchedule(item, spec, item_type=ITEM_TYPE, kwargs=arguments, options=RETRY_OPTIONS)
        await save_schedule(connection, org, new, replace=True)
    finally:
        await connection.close()


async def pause_schedules(postgres: PostgresEndpoint, org: UUID) -> None:
    """Start no further runs; repeated while PostgreSQL is unreachable."""
    paused: set[str] = set()
    while len(paused) < len(SCHEDULES):
        with contextlib.suppress(*CONNECTION_ERRORS):
            connection = await connect(postgres)
            try:
                for name in SCHEDULES:
                    await pause_schedule(connection, org, name)
                    paused.add(name)
            finally:
                connection.terminate()
        await asyncio.sleep(RETRY_SECONDS)
