"""Stateful property test of limited jobs, debounced items and schedules, against a model in Python.

The model states what users rely on: how many jobs of a name run, which payloads run, and which nominal times have runs.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from aaiclick.orchestration.loops import scheduler
from aaiclick.orchestration.schedule_spec import ScheduleSpec
from aaiclick.orchestration.scheduled_runs import start_run
from aaiclick.orchestration.schedules import NewSchedule, save_schedule
from aaiclick.orchestration.waits import run_wait_for_turn
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queue, schedules, user_actions
from aaiclick.store.engine.enqueue import Debounce, enqueue_debounced
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Success
from aaiclick.store.engine.retry_and_redrive import retry_failed_tasks
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.job_policy import JobPolicy
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions
from tests.cases import ALL_CASES

T = TypeVar("T")
LATER = timedelta(hours=2)
LIMITS = {"one": 1, "two": 2}
"""Name of a job → how many of them may run."""
EVERY = timedelta(hours=1)
ACTIVE = """
    SELECT j.id, j.name, EXISTS (
        SELECT FROM tasks t WHERE t.job_id = j.id AND t.type = 'work'
          AND (t.status IN ('CLAIMED', 'RUNNING') OR t.readiness IN ('READY', 'TIME'))) AS runs
    FROM jobs j WHERE j.name = ANY ($1) AND j.completed_at IS NULL ORDER BY j.id
"""
STARTED = "SELECT trigger ->> 'nominal' AS nominal FROM jobs WHERE name = $1 AND trigger ->> 'kind' <> 'fire'"


class FlowLife(RuleBasedStateMachine):
    endpoint: PostgresEndpoint
    loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        self.db: asyncpg.Connection = self.run(connect(self.endpoint))
        tables = "jobs, tasks, groups, dependencies, task_attempts, workers, waits, schedules"
        self.run(self.db.execute(f"TRUNCATE {tables} CASCADE"))
        self.worker = self.run(queue.register_worker(self.db, hostname="h", pid=1)).id
        self.zero: datetime = self.run(self.db.fetchval("SELECT now()"))
        self.clock = timedelta()
        self.held: list[Claim] = []
        self.waiting: dict[str, dict[str, int]] = {}
        """Key → payload of the item that waits."""
        self.written = 0
        self.first: dict[str, datetime] = {}
        """Schedule → its first nominal time."""
        self.paused: set[str] = set()
        self.expected: dict[str, set[datetime]] = {}
        """Schedule → nominal times that must have a run."""

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.run(self.drain())
            self.run(self.db.close())

    # --- limited jobs -------------------------------------------------------------------------------------------------

    def list_unfinished(self, name: str) -> list[asyncpg.Record]:
        return self.run(self.db.fetch(ACTIVE, [name]))

    @rule(
        name=st.sampled_from(list(LIMITS)),
        when_busy=st.sampled_from(["queue", "skip", "keep_newest", "cancel_running"]),
    )
    def submit(self, name: str, when_busy: Any) -> None:
        before = self.list_unfinished(name)
        job = NewJob(get_snowflake_id(), name, policy=JobPolicy(LIMITS[name], when_busy))
        last = NewTask(get_snowflake_id(), "last", options=TaskOptions(when="ended"))
        work = NewTask(get_snowflake_id(), "work")
        started = self.run(submit_job(self.db, job, Plan([work, last], [], [(work.id, last.id)])))
        after = {row["id"]: row["runs"] for row in self.list_unfinished(name)}
        is_busy = len(before) >= LIMITS[name]
        assert (started == job.id) == (not is_busy or when_busy != "skip")
        if not is_busy:
            assert after[job.id]
        elif when_busy == "skip":
            assert started == before[-1]["id"]
        elif when_busy == "queue":
            assert set(after) == {job.id, *(row["id"] for row in before)}
        elif when_busy == "keep_newest":
            # Those that run go on, and of the others only the new one is left.
            assert {row["id"] for row in before if row["runs"]} <= set(after)

    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        claims = self.run(
            queue.claim(self.db, worker_id=self.worker, limit=limit, queues=["default"], lease_seconds=9e4)
        )
        self.held += [claim for claim in claims if claim.type not in ("wait_for_turn", "last")]
        self.run(self.take_turns(claims))

    async def take_turns(self, claims: list[Claim]) -> None:
        """Begin and end waits for a turn, as a worker does, and complete final tasks."""
        for claim in claims:
            kwargs = json.loads(claim.kwargs)
            if claim.type == "wait_for_turn":
                wait = await run_wait_for_turn(**kwargs)
                await self.acknowledge(Success(claim.lease, wait=wait))
            elif claim.type == "last":
                await self.acknowledge(Success(claim.lease))

    async def acknowledge(self, *outcomes: Success | Failure) -> None:
        successes = [outcome for outcome in outcomes if isinstance(outcome, Success)]
        failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
        await queue.acknowledge(self.db, worker_id=self.worker, successes=successes, failures=failures)

    @rule(fails=st.booleans(), data=st.data())
    def end(self, fails: bool, data: st.DataObject) -> None:
        """The end of a job lets another one of its name run."""
        if not self.held:
            return
        claim = self.held.pop(data.draw(st.integers(0, len(self.held) - 1), "attempt"))
        outcome = Failure(claim.lease, "e", "f", permanent=True) if fails else Success(claim.lease)
        self.run(self.acknowledge(outcome))

    @rule(expired=st.booleans(), data=st.data())
    def cancel(self, expired: bool, data: st.DataObject) -> None:
        """Someone cancels a job, or its timeout does: it may wait for its turn."""
        jobs = [row["id"] for name in LIMITS for row in self.list_unfinished(name)]
        if jobs:
            job = data.draw(st.sampled_from(jobs), "job")
            self.run(user_actions.cancel_job(self.db, job, error="It exceeded its timeout." if expired else None))

    @rule(cancelled=st.booleans(), data=st.data())
    def retry(self, cancelled: bool, data: st.DataObject) -> None:
        """A job that has ended, or a part of one that has not, runs again when it is its turn."""
        jobs = self.run(self.db.fetch("SELECT id FROM jobs WHERE name = ANY ($1) ORDER BY id", list(LIMITS)))
        if jobs:
            job = data.draw(st.sampled_from([row["id"] for row in jobs]), "job")
            self.run(retry_failed_tasks(self.db, job, cancelled=cancelled))

    @invariant()
    def no_more_jobs_run_than_allowed(self) -> None:
        if not hasattr(self, "db"):
            return
        for name, limit in LIMITS.items():
            assert sum(row["runs"] for row in self.list_unfinished(name)) <= limit

    # --- debounced items ----------------------------------------------------------------------------------------------

    @rule(key=st.sampled_from(["k1", "k2"]), field=st.sampled_from(["a", "b"]), is_merged=st.booleans())
    def debounce(self, key: str, field: str, is_merged: bool) -> None:
        self.written += 1
        payload = {field: self.written}
        task = NewTask(get_snowflake_id(), "mail", kwargs=json.dumps(payload), options=TaskOptions(queue="mail"))
        self.run(enqueue_debounced(self.db, task, Debounce(30.0, key, is_merged)))
        self.waiting[key] = {**(self.waiting.get(key, {}) if is_merged else {}), **payload}

    @rule()
    def promote(self) -> None:
        """The delay of items ends; until a worker claims them they are still replaced."""
        self.run(queue.promote_due_tasks(self.db, now=self.zero + LATER + self.clock))

    @rule(limit=st.integers(1, 2))
    def claim_items(self, limit: int) -> None:
        self.promote()
        claims = self.run(queue.claim(self.db, worker_id=self.worker, limit=limit, queues=["mail"], lease_seconds=9e4))
        for claim in claims:
            payload = json.loads(claim.kwargs)
            [key] = [key for key, waiting in self.waiting.items() if waiting == payload]
            del self.waiting[key]
        assert len(claims) == limit or not self.waiting
        self.run(self.acknowledge(*(Success(claim.lease) for claim in claims)))

    @rule()
    def cancel_items(self) -> None:
        """Items that were cancelled are not replaced: the next payload is a new item."""
        rows = self.run(self.db.fetch("SELECT id FROM tasks WHERE type = 'mail' AND completed_at IS NULL"))
        self.run(user_actions.cancel_tasks(self.db, [row["id"] for row in rows]))
        self.waiting.clear()

    # --- schedules ----------------------------------------------------------------------------------------------------

    @rule(missed=st.sampled_from(["all", "latest"]))
    def schedule(self, missed: str) -> None:
        if missed in self.first:
            return
        spec = ScheduleSpec.parse(None, "1h", missed=missed, overlap="allow")
        new = NewSchedule(missed, spec, "m.scheduled", missed)
        self.run(save_schedule(self.db, DEFAULT_ORG_ID, new, replace=True))
        self.first[missed] = self.run(self.db.fetchval("SELECT next_run_at FROM schedules WHERE name = $1", missed))
        self.expected[missed] = set()

    @rule(minutes=st.sampled_from([10, 60, 150]))
    def pass_time(self, minutes: int) -> None:
        self.clock += timedelta(minutes=minutes)
        now = self.zero + self.clock
        before = {name: self.list_runs(name) for name in self.first}
        self.run(scheduler.start_due_schedules(self.db, now=now))
        for name, first in self.first.items():
            due = [first + n * EVERY for n in range(int((now - first) / EVERY) + 1)] if now >= first else []
            if name in self.paused:
                assert self.list_runs(name) == before[name]
            elif due:
                self.expected[name] |= set(due if name == "all" else due[-1:])

    def list_runs(self, name: str) -> list[datetime]:
        return sorted(datetime.fromisoformat(row["nominal"]) for row in self.run(self.db.fetch(STARTED, name)))

    @rule(paused=st.booleans(), data=st.data())
    def pause(self, paused: bool, data: st.DataObject) -> None:
        if self.first:
            name = data.draw(st.sampled_from(sorted(self.first)), "schedule")
            change = schedules.pause_schedule if paused else schedules.resume_schedule
            self.run(change(self.db, DEFAULT_ORG_ID, name))
            (self.paused.add if paused else self.paused.discard)(name)

    @rule(cause=st.sampled_from(["backfill", "fire"]), number=st.integers(-2, 3), data=st.data())
    def start_by_hand(self, cause: Any, number: int, data: st.DataObject) -> None:
        """A backfill starts a nominal time that the scheduler has started, or will start, once."""
        if self.first:
            name = data.draw(st.sampled_from(sorted(self.first)), "schedule")
            row = self.run(schedules.lock_schedule(self.db, DEFAULT_ORG_ID, name))
            assert row is not None
            nominal = self.first[name] + number * EVERY
            self.run(start_run(self.db, row, nominal, cause))
            if cause == "backfill":
                self.expected[name].add(nominal)

    @invariant()
    def each_nominal_time_has_one_run(self) -> None:
        for name in getattr(self, "first", {}):
            assert self.list_runs(name) == sorted(self.expected[name])

    # --- the end ------------------------------------------------------------------------------------------------------

    @invariant()
    def the_database_is_consistent(self) -> None:
        if hasattr(self, "db"):
            assert self.run(check_invariants(self.db, grace_seconds=1e9)) == []

    async def drain(self) -> None:
        """Everything that waits gets its turn."""
        await self.acknowledge(*(Success(claim.lease) for claim in self.held))
        while claims := await queue.claim(
            self.db, worker_id=self.worker, limit=50, queues=[], lease_seconds=9e4, now=self.zero + LATER + self.clock
        ):
            await self.take_turns(claims)
            rest = [claim for claim in claims if claim.type not in ("wait_for_turn", "last")]
            await self.acknowledge(*(Success(claim.lease) for claim in rest))
        assert await self.db.fetchval("SELECT count(*) FROM jobs WHERE completed_at IS NULL") == 0


@pytest.mark.timeout(int(os.environ.get("MACHINE_TIMEOUT", "600")))
def test_random_operations_keep_limits_and_schedules(aaiclick_postgres: PostgresEndpoint) -> None:
    loop = asyncio.new_event_loop()
    try:
        machine = type("FlowLifeHere", (FlowLife,), {"endpoint": aaiclick_postgres, "loop": loop})
        lives = int(os.environ.get("MACHINE_LIVES", "10"))
        steps = int(os.environ.get("MACHINE_STEPS", "25"))
        options = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
        if (
            not ALL_CASES and "MACHINE_LIVES" not in os.environ
        ):  # the same operations each time; no search for the shortest failure, which takes minutes
            options |= {"derandomize": True, "phases": [Phase.generate]}
        run_state_machine_as_test(machine, settings=settings(max_examples=lives, stateful_step_count=steps, **options))
    finally:
        loop.close()
