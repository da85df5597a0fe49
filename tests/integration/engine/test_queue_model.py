"""Stateful property test: random operations on jobs against a model in Python, on real PostgreSQL.

The model follows the rules of the requirements, without counters or locks. After each step the database must agree with
it about every status, and the invariants must hold.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from aaiclick.errors import ConflictError, LeaseLost, LimitError, SubmitError
from aaiclick.orchestration.compensation import list_completed_steps
from aaiclick.orchestration.loops import reaper
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.snowflake import get_snowflake_id, get_snowflake_ids
from aaiclick.store.engine import queue, user_actions
from aaiclick.store.engine.approvals import RecordedDecision, decide_approval
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.invariants import INVARIANTS, check_invariants
from aaiclick.store.engine.leases_and_outcomes import ApprovalRequest, Claim, Failure, Success, Wait
from aaiclick.store.engine.new_jobs import MAX_CHILD_DEPTH
from aaiclick.store.engine.queries import load_task_results
from aaiclick.store.engine.retry_and_redrive import COMPENSATOR
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan, expand_handler_edges
from aaiclick.store.engine.submit import NewJob, add_to_job, submit_job
from aaiclick.store.engine.waits import send_event
from aaiclick.store.enums import DEFAULT_ORG_ID, Cancellation
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import HANDLER_RULES, TaskOptions
from tests.cases import ALL_CASES
from tests.integration.engine.queue_model import Model, Node

T = TypeVar("T")
MAX_ATTEMPTS = 2
WAITS = {
    "event": Wait("event", name="e"),
    "time": Wait("time"),
    "approval": Wait("approval", approval=ApprovalRequest("Pay?", "writer")),
    "poll": Wait("poll"),
    "job": Wait("job"),
}
LEASE_SECONDS = 60.0
RATE, ALLOWED = "2/60", 2


class Life(RuleBasedStateMachine):
    endpoint: PostgresEndpoint
    loop: asyncio.AbstractEventLoop
    leases = Bundle("leases")
    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.finished_jobs: set[int] = set()
        self.undone: set[tuple[int, int]] = set()
        """Attempts of compensators that have added their compensations."""
        self.compensated: list[int] = []
        """Jobs of `fail_saga`."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        self.db: asyncpg.Connection = self.run(connect(self.endpoint))
        self.run(
            self.db.execute(
                "TRUNCATE jobs, tasks, groups, dependencies, task_attempts, workers, workflow_events, queues,"
                " rate_limits CASCADE"
            )
        )
        self.worker = self.run(queue.register_worker(self.db, hostname="h", pid=1)).id
        self.other = self.run(queue.register_worker(self.db, hostname="o", pid=2)).id
        self.zero = self.run(self.db.fetchval("SELECT now()"))
        self.term = 0

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.run(self.db.close())

    @property
    def now(self) -> Any:
        return self.zero + self.model.clock

    def draw_plan(self, data: st.DataObject, job: int, old: list[int]) -> Plan:
        """Up to four tasks and two groups that wait for earlier ones, new or `old`."""
        tasks, groups, edges, new = [], [], [], []
        for _ in range(data.draw(st.integers(0, 2), "groups")):
            parent = data.draw(st.sampled_from([None, *(g.id for g in groups)]), "parent")
            group_id = get_snowflake_id()
            groups.append(NewGroup(group_id, f"g{group_id}", parent))
        for _ in range(data.draw(st.integers(1, 4), "tasks")):
            group = data.draw(st.sampled_from([None, *(g.id for g in groups)]), "group")
            critical = data.draw(st.sampled_from([True, True, False]), "critical")
            when = data.draw(st.sampled_from([None, None, "any", "failed", "ended"]), "when")
            rate = data.draw(st.sampled_from([None, None, None, None, "1000/60", RATE]), "rate")  # 1000: never reached
            options = TaskOptions(MAX_ATTEMPTS, critical=critical, when=when, rate=rate, rate_key=rate and f"k{rate}")
            group = None if when in HANDLER_RULES else group
            task_id = get_snowflake_id()
            tasks.append(NewTask(task_id, f"t{task_id}", group_id=group, options=options))
        nodes = [*groups, *tasks]
        for node in nodes:
            before = data.draw(st.lists(st.sampled_from([None, *old, *new]), max_size=2, unique=True), "waits")
            edges.extend((previous, node.id) for previous in before if previous is not None)
            if not isinstance(node, NewTask) or node.options.when not in HANDLER_RULES:
                new.append(node.id)  # nothing depends on handlers here
        return Plan(tasks, groups, edges)

    def draw_compensator(self, data: st.DataObject, plan: Plan) -> Plan:
        """Add a handler that undoes some tasks of a job, and perhaps one that runs last."""
        critical = [t.id for t in plan.tasks if t.options.critical and t.options.when not in HANDLER_RULES]
        if not critical or not data.draw(st.booleans(), "compensated"):
            return plan
        steps = data.draw(st.lists(st.sampled_from(critical), min_size=1, unique=True), "steps")
        handlers = [make_compensator(steps)]
        edges = [(key, handlers[0].id) for key in critical]
        if data.draw(st.booleans(), "last"):
            last = NewTask(get_snowflake_id(), "", options=TaskOptions(MAX_ATTEMPTS, when="ended"))
            last.type = f"t{last.id}"
            handlers.append(last)
            edges += [(key, last.id) for key in (*critical, handlers[0].id)]
        return Plan([*plan.tasks, *handlers], plan.groups, [*plan.edges, *edges])

    def learn(self, plan: Plan, job: int) -> None:
        plan = expand_handler_edges(plan, {})
        for model_nodes, nodes in ((self.model.groups, plan.groups), (self.model.tasks, plan.tasks)):
            for node in nodes:
                around = node.group_id if isinstance(node, NewTask) else node.parent_group_id
                previous = {a for a, b in plan.edges if b == node.id}
                model_nodes[node.id] = Node(node.id, job, around, previous)
                if isinstance(node, NewTask):
                    model_nodes[node.id].critical = node.options.critical
                    model_nodes[node.id].when = node.options.when
                    model_nodes[node.id].is_rated = node.options.rate == RATE
                    steps = json.loads(node.kwargs).get("steps", []) if node.entrypoint == COMPENSATOR else []
                    model_nodes[node.id].steps = [int(step["task_id"]) for step in steps]

    @rule(target=jobs, data=st.data())
    def submit(self, data: st.DataObject) -> int:
        job = get_snowflake_id()
        try:
            return self.submit_plan(job, self.draw_compensator(data, self.draw_plan(data, job, [])))
        except SubmitError:
            return 0  # a cycle through groups

    def submit_plan(self, job: int, plan: Plan) -> int:
        self.run(submit_job(self.db, NewJob(job, "j"), plan, now=self.now))
        self.learn(plan, job)
        return job

    @rule(job=jobs, data=st.data())
    def add(self, job: int, data: st.DataObject) -> None:
        old = [n.key for n in (*self.model.tasks.values(), *self.model.groups.values()) if n.job == job]
        plan = self.draw_plan(data, job, old)
        try:
            self.run(add_to_job(self.db, job, plan, now=self.now)) if job else None
        except SubmitError:
            impossible = any(self.model.is_unreachable(a) for a, _ in plan.edges if a in old)
            over = self.model.job_status(job) != "open" or job in self.finished_jobs
            early = any(self.model.staged(a) for a, _ in plan.edges if a in old)
            rules = any(task.options.when for task in plan.tasks)
            skipped = any(self.model.node(a).status == "SKIPPED" for a, _ in plan.edges if a in old)
            assert impossible or over or early or rules or skipped or len(plan.groups)
            return
        if job:
            assert not any(self.model.staged(a) for a, _ in plan.edges if a in old)
            self.learn(plan, job)

    @rule(claims=leases, data=st.data())
    def grow(self, claims: list[Claim], data: st.DataObject) -> None:
        """Add to a job by a task; without its lease this is rejected."""
        for claim in claims[:1]:
            key, job = claim.lease.task_id, claim.job_id
            assert job is not None
            if key in self.model.tasks and self.model.tasks[key].when in HANDLER_RULES:
                return
            old = [n.key for n in (*self.model.tasks.values(), *self.model.groups.values()) if n.job == job]
            plan = self.draw_plan(data, job, [n for n in old if n != key])
            try:
                self.grow_plan(claim, plan)
            except LeaseLost:
                assert not self.holds(claim)
            except SubmitError:
                return

    def grow_plan(self, claim: Claim, plan: Plan) -> None:
        key, job = claim.lease.task_id, claim.job_id
        assert job is not None
        self.run(add_to_job(self.db, job, plan, lease=claim.lease, now=self.now))
        assert self.holds(claim)
        self.learn(plan, job)
        new = {n.id for n in (*plan.tasks, *plan.groups)}
        inner = {b for a, b in expand_handler_edges(plan, {}).edges if a in new}
        first = new - inner
        for node in (*self.model.tasks.values(), *self.model.groups.values()):
            if node.key in new:
                node.added = key, claim.lease.attempt
                if not node.previous & new and node.group not in new and node.key in first:
                    node.previous.add(key)
        for handler in self.model.handlers({key}):
            if handler.key not in new:
                handler.previous |= {n.id for n in plan.tasks}

    @rule(claims=leases, data=st.data())
    def hand_over(self, claims: list[Claim], data: st.DataObject) -> None:
        """A task returns some of the tasks that it has added."""
        for claim in claims[:1]:
            key = claim.lease.task_id
            own = [t.key for t in self.model.tasks.values() if t.added == (key, claim.lease.attempt)]
            if not own:
                return
            awaits = data.draw(st.lists(st.sampled_from(own), min_size=1, max_size=2, unique=True), "returned")
            self.return_tasks(claim, awaits)

    def return_tasks(self, claim: Claim, awaits: list[int]) -> None:
        key = claim.lease.task_id
        mine = {key} if self.holds(claim) else set()
        success = Success(claim.lease, '"r"', awaits=awaits)
        assert self.run(queue.acknowledge(self.db, worker_id=self.worker, successes=[success], now=self.now)) == mine
        if mine and self.model.tasks[key].cancel_requested:
            self.model.tasks[key].status = "CANCELLED"
        elif mine:
            task = self.model.tasks[key]
            task.status, task.returned = "PENDING", set(awaits)
            self.model.remove_additions(key, claim.lease.attempt)
            for node in (*self.model.tasks.values(), *self.model.groups.values()):
                if node.added == (key, claim.lease.attempt):
                    node.previous.discard(key)
        self.model.settle()

    @rule(key=st.sampled_from(["k1", "k2"]))
    def enqueue_twice(self, key: str) -> None:
        options = TaskOptions(queue="elsewhere")
        task = [NewTask(get_snowflake_id(), "lone", idempotency_key=key, options=options) for _ in range(2)]
        first, second = self.run(enqueue_tasks(self.db, task))
        assert first == second

    @rule(target=leases, limit=st.integers(1, 3))
    def claim(self, limit: int) -> list[Claim]:
        expected = self.model.claimable()
        claims = self.run(
            queue.claim(self.db, worker_id=self.worker, limit=limit, queues=["default"],
                        lease_seconds=LEASE_SECONDS, now=self.now)
        )  # fmt: skip
        claimed = {c.lease.task_id for c in claims}
        rated = {key for key in expected if self.model.tasks[key].is_rated}
        if rated:
            self.take_promotions()
        elif self.model.is_paused or len(self.model.ready()) < limit:
            self.model.promote()
        assert claimed <= expected
        most = ALLOWED - self.model.count_rated_claims(timedelta(seconds=60))
        least = max(
            0, ALLOWED - self.model.count_rated_claims(timedelta(seconds=62))
        )  # parts of a fiftieth of the period
        assert len(claimed & rated) <= most
        assert len(claims) >= min(limit, len(expected - rated) + min(least, len(rated)))
        self.model.rated_claims += [self.model.clock] * len(claimed & rated)
        for claim in claims:
            task = self.model.tasks[claim.lease.task_id]
            assert claim.lease.attempt > task.attempt
            task.status, task.retry_at, task.attempt = "CLAIMED", None, claim.lease.attempt
            task.waits_until = task.waits_for = None
            task.lease_until = self.model.clock + timedelta(seconds=LEASE_SECONDS)
        return claims

    def take_promotions(self) -> None:
        """Due tasks may have been promoted or not: that depends on which tasks were held above their rate."""
        rows = self.run(self.db.fetch("SELECT id, status::text, readiness::text FROM tasks"))
        for row in rows:
            task = self.model.tasks.get(row["id"])
            if task is not None and task.retry_at is not None and row["status"] != "FAILED":
                assert task.retry_at <= self.model.clock
                task.status, task.retry_at = "PENDING", None
            waits = task is not None and task.status == "PENDING" and task.waits_until is not None
            if task is not None and waits and row["readiness"] != "TIME":
                assert task.waits_until is not None
                assert task.waits_until <= self.model.clock
                task.waits_until = task.waits_for = None

    def holds(self, claim: Claim) -> bool:
        task = self.model.tasks.get(claim.lease.task_id)
        return task is not None and task.status == "CLAIMED" and task.attempt == claim.lease.attempt

    @rule(claims=leases)
    def complete(self, claims: list[Claim]) -> None:
        """Leases stay in the bundle, so late and repeated completions occur."""
        for claim in claims:
            self.undo(claim)
        mine = {c.lease.task_id for c in claims if self.holds(c)}
        successes = [Success(c.lease, '"r"') for c in claims]
        assert self.run(queue.acknowledge(self.db, worker_id=self.worker, successes=successes, now=self.now)) == mine
        self.complete_in_model(mine)
        self.model.settle()

    def undo(self, claim: Claim) -> None:
        """A compensator adds the compensations as a chain, once per attempt."""
        arguments, lease = json.loads(claim.kwargs), claim.lease
        if "steps" not in arguments or (lease.task_id, lease.attempt) in self.undone:
            return
        self.undone.add((lease.task_id, lease.attempt))
        assert claim.job_id is not None
        keys = [int(step["task_id"]) for step in arguments["steps"]]
        results = self.run(load_task_results(self.db, claim.job_id, keys))
        completed = [int(step["task_id"]) for step in list_completed_steps(arguments["steps"], results)]
        if self.holds(claim):
            assert completed == self.model.completed_steps(self.model.tasks[lease.task_id])
        if not completed or not arguments["failure"]["critical"]:
            return
        chain = [make_compensation(key) for key in completed]
        try:
            self.grow_plan(claim, Plan(chain, [], [(a.id, b.id) for a, b in pairwise(chain)]))
        except LeaseLost:
            assert not self.holds(claim)

    @rule(claims=leases)
    def undo_without_end(self, claims: list[Claim]) -> None:
        """A compensator is interrupted after its addition."""
        for claim in claims:
            self.undo(claim)

    @rule(fails=st.booleans())
    def work(self, fails: bool) -> None:
        """Claim three tasks, and end them: further parts of jobs are reached than by single steps."""
        claims = self.claim(3)
        if fails and claims:
            self.fail([claims.pop()], permanent=True, delay=0.0)
        self.advance_the_clock(1)
        self.complete(claims)

    @rule(
        target=leases, count=st.integers(2, 3), in_a_row=st.booleans(), expired=st.booleans(),
        stage=st.integers(0, 2), with_last=st.booleans(),
    )  # fmt: skip
    def fail_saga(self, count: int, in_a_row: bool, expired: bool, stage: int, with_last: bool) -> list[Claim]:
        """A job with compensations fails; of their chain `stage` tasks have begun."""
        if self.model.is_paused:
            return []
        new = [NewTask(key, f"t{key}", options=TaskOptions(MAX_ATTEMPTS)) for key in get_snowflake_ids(count + 1)]
        compensator = make_compensator([task.id for task in new[:-1]])
        last = NewTask(get_snowflake_id(), "", options=TaskOptions(MAX_ATTEMPTS, when="ended"))
        last.type = f"t{last.id}"
        edges = list(pairwise(task.id for task in new)) if in_a_row else [(task.id, new[-1].id) for task in new[:-1]]
        edges += [(task.id, compensator.id) for task in new]
        handlers = [compensator, last] if with_last else [compensator]
        edges += [(task.id, last.id) for task in (*new, compensator)] if with_last else []
        job = self.submit_plan(get_snowflake_id(), Plan([*new, *handlers], [], edges))
        while (claims := self.claim(3)) and new[-1].id not in (claim.lease.task_id for claim in claims):
            self.complete(claims[::2])
            self.advance_the_clock(1)
            self.complete(claims[1::2])
        self.compensated.append(job)
        self.cancel(job, True) if expired else None
        self.fail(claims, permanent=True, delay=0.0)
        for _ in range(stage):
            self.complete(self.claim(3))
        return self.claim(1)

    @rule(change=st.sampled_from(["retry", "clear", "cancel"]), data=st.data())
    def restart_saga(self, change: str, data: st.DataObject) -> None:
        """A compensated job runs again, or a part of it, or its compensations end."""
        if not self.compensated:
            return
        job = data.draw(st.sampled_from(self.compensated), "job")
        if change == "clear":
            keys = sorted(task.key for task in self.model.tasks.values() if task.job == job)
            self.clear_one(data.draw(st.sampled_from(keys), "task"))
        elif change == "cancel":
            self.cancel(job)
        else:
            self.retry(job)

    def complete_in_model(self, keys: set[int]) -> None:
        for key in keys:
            cancelled = self.model.tasks[key].cancel_requested
            self.model.tasks[key].status = "CANCELLED" if cancelled else "COMPLETED"
            self.model.tasks[key].completed_at = self.model.clock
        for key in keys & self.model.tasks.keys():
            if self.model.tasks[key].status == "COMPLETED":
                self.model.remove_additions(key, self.model.tasks[key].attempt)

    @rule(claims=leases, wait_type=st.sampled_from(list(WAITS)), seconds=st.sampled_from([30.0, 60.0]))
    def wait(self, claims: list[Claim], wait_type: str, seconds: float) -> None:
        """A task waits for the event, a decision, a time, the next poll, or the end of another job."""
        for claim in claims[:1]:
            key = claim.lease.task_id
            mine = {key} if self.holds(claim) else set()
            awaited = min({task.job for task in self.model.tasks.values()} - {claim.job_id}, default=None)
            if wait_type == "job" and awaited is None:
                return
            wait = replace(WAITS[wait_type], seconds=seconds, job_id=awaited if wait_type == "job" else None)
            success = [Success(claim.lease, wait=wait)]
            assert self.run(queue.acknowledge(self.db, worker_id=self.worker, successes=success, now=self.now)) == mine
            if mine:
                self.model.wait(key, wait_type, seconds, wait.job_id)
        self.model.settle()

    @rule(approved=st.booleans(), data=st.data())
    def decide(self, approved: bool, data: st.DataObject) -> None:
        """Someone decides any question, also one that is closed."""
        rows = self.run(self.db.fetch("SELECT id, task_id, attempt FROM approvals ORDER BY id"))
        if not rows:
            return
        row = data.draw(st.sampled_from(rows), "question")
        task = self.model.tasks.get(row["task_id"])
        is_open = task is not None and (task.status, task.waits_for, task.attempt) == (
            "PENDING",
            "approval",
            row["attempt"],
        )
        try:
            self.run(decide_approval(self.db, row["id"], RecordedDecision(approved, "ada", "", {}), now=self.now))
        except ConflictError:
            assert not is_open
            return
        assert is_open
        assert task is not None
        task.waits_until = task.waits_for = None

    @rule(target=jobs, claims=leases, data=st.data())
    def spawn(self, claims: list[Claim], data: st.DataObject) -> int:
        """A running task submits a child job; without its lease, or after a cancellation, this is refused."""
        claim = data.draw(st.sampled_from(claims), "parent") if claims else None
        if claim is None or claim.lease.task_id not in self.model.tasks:
            return 0
        if self.model.belongs_to_handler(claim.lease.task_id):
            return 0
        key = claim.lease.task_id
        task = NewTask(get_snowflake_id(), "", options=TaskOptions(MAX_ATTEMPTS))
        task.type = f"t{task.id}"
        plan, job = Plan([task], [], []), get_snowflake_id()
        refused = not self.holds(claim) or self.model.tasks[key].cancel_requested
        try:
            self.run(submit_job(self.db, NewJob(job, "child", parent=claim.lease), plan, now=self.now))
        except (LeaseLost, LimitError):
            assert refused or len(self.model.parents) >= MAX_CHILD_DEPTH
            return 0
        assert not refused
        self.learn(plan, job)
        self.model.parents[job] = key
        return job

    @rule(keep=st.sampled_from([0.0, 20.0, 100.0]))
    def send(self, keep: float) -> None:
        waiting = [t for t in self.model.tasks.values() if t.status == "PENDING" and t.waits_for == "event"]
        _, count = self.run(send_event(self.db, DEFAULT_ORG_ID, "e", keep_seconds=keep, now=self.now))
        assert count == len(waiting)
        for task in waiting:
            task.waits_until = task.waits_for = None
        self.model.event_until = max(self.model.event_until, self.model.clock + timedelta(seconds=keep))

    @rule(claims=leases, data=st.data())
    def choose(self, claims: list[Claim], data: st.DataObject) -> None:
        """A task chooses some of its dependents."""
        for claim in claims[:1]:
            key, model = claim.lease.task_id, self.model
            nodes = [n for n in (*model.tasks.values(), *model.groups.values()) if key in n.previous]
            nodes = [n for n in nodes if n.when not in HANDLER_RULES and (n.added is None or n.added[0] != key)]
            chosen = data.draw(st.lists(st.sampled_from(nodes), unique=True), "chosen") if nodes else []
            self.choose_nodes(claim, chosen, nodes)

    def choose_nodes(self, claim: Claim, chosen: list[Node], nodes: list[Node]) -> None:
        key = claim.lease.task_id
        mine = {key} if self.holds(claim) else set()
        names = [f"{'t' if n.key in self.model.tasks else 'g'}{n.key}" for n in chosen]
        success = Success(claim.lease, branch=names)
        assert self.run(queue.acknowledge(self.db, worker_id=self.worker, successes=[success], now=self.now)) == mine
        task = self.model.tasks.get(key)
        if mine and task is not None:
            left_out = [n for n in nodes if n not in chosen and n.status == "PENDING"]
            left_out = [n for n in left_out if n.key in self.model.tasks or not self.model.is_unreachable(n.key)]
            self.complete_in_model({key})
            if task.status == "COMPLETED" and not task.passed_over:
                for node in left_out:
                    node.status = "SKIPPED"
        self.model.settle()

    @rule(claims=leases, permanent=st.booleans(), delay=st.sampled_from([0.0, 30.0]))
    def fail(self, claims: list[Claim], permanent: bool, delay: float) -> None:
        mine = {c.lease.task_id for c in claims if self.holds(c)}
        failures = [Failure(c.lease, "e", "f", permanent, delay) for c in claims]
        assert self.run(queue.acknowledge(self.db, worker_id=self.worker, failures=failures, now=self.now)) == mine
        for key in mine:
            self.failed(self.model.tasks[key], permanent, delay)
        self.model.settle()

    def failed(self, task: Node, permanent: bool, delay: float) -> None:
        task.failures += 1
        if task.cancel_requested:
            task.status = "CANCELLED"
        elif permanent:
            task.status = "FAILED"
        elif task.failures >= MAX_ATTEMPTS:
            task.status = "DEAD_LETTER"
        else:
            task.status, task.retry_at = "FAILED", self.model.clock + timedelta(seconds=delay)
        if not task.critical and task.status in ("FAILED", "DEAD_LETTER") and task.retry_at is None:
            if not task.passed_over:
                self.model.remove_additions(task.key, 0)
            task.passed_over = True

    @rule(claims=leases)
    def release(self, claims: list[Claim]) -> None:
        mine = {c.lease.task_id for c in claims if self.holds(c)}
        releases = [c.lease for c in claims]
        assert self.run(queue.acknowledge(self.db, worker_id=self.worker, releases=releases, now=self.now)) == mine
        for key in mine:
            task = self.model.tasks[key]
            task.status = "CANCELLED" if task.cancel_requested else "PENDING"
        self.model.settle()

    @rule(claims=leases)
    def heartbeat(self, claims: list[Claim]) -> None:
        leases = [c.lease for c in claims]
        answer = self.run(
            queue.heartbeat(self.db, worker_id=self.worker, leases=leases, lease_seconds=LEASE_SECONDS, now=self.now)
        )
        assert answer.lost == {c.lease.task_id for c in claims if not self.holds(c)}
        for claim in claims:
            if self.holds(claim):
                until = self.model.clock + timedelta(seconds=LEASE_SECONDS)
                self.model.tasks[claim.lease.task_id].lease_until = until

    @rule(seconds=st.sampled_from([10, 31, 61]))
    def advance_the_clock(self, seconds: int) -> None:
        self.model.clock += timedelta(seconds=seconds)

    @rule()
    def reap(self) -> None:
        now = self.model.clock
        live = [t for t in self.model.tasks.values() if t.status == "CLAIMED" and t.lease_until is not None]
        expired = [t for t in live if t.lease_until <= now]  # pyright: ignore[reportOptionalOperand]
        counts = self.run(reaper.run_once(self.db, worker_timeout_seconds=1e9, now=self.now))
        assert counts["tasks"] == len(expired)
        for task in expired:
            self.failed(task, permanent=False, delay=0)
            if task.retry_at is not None:
                row = self.run(self.db.fetchval("SELECT next_retry_at FROM tasks WHERE id = $1", task.key))
                task.retry_at = row - self.zero
        self.model.settle()

    @rule(job=jobs, expired=st.booleans())
    def cancel(self, job: int, expired: bool = False) -> None:
        """Someone cancels a job, or it exceeds its timeout: then failure handlers run."""
        if not job:
            return
        was_open = self.model.job_status(job) == "open"
        error = "It exceeded its timeout." if expired else None
        outcome = self.run(user_actions.cancel_job(self.db, job, error=error, now=self.now))
        assert (outcome is not Cancellation.OVER) == was_open
        if not was_open or (expired and job in self.finished_jobs):  # handlers of a cancelled job have no timeout
            return
        if expired:
            self.model.expired.add(job)
        self.cancel_in_model(job, expired)
        self.model.settle()
        assert (outcome is Cancellation.REQUESTED) == (self.model.job_status(job) == "open")

    def cancel_in_model(self, job: int, expired: bool = False) -> None:
        """Cancel a job and its children."""
        unfinished = [t for t in self.model.tasks.values() if t.job == job and not self.model.ended(t.key)]
        ordinary = [t for t in unfinished if not self.model.belongs_to_handler(t.key)]
        are_handlers_kept = (ordinary or expired) and job not in self.finished_jobs
        for task in ordinary if are_handlers_kept else unfinished:
            if task.status == "CLAIMED":
                task.cancel_requested = True
            else:
                task.status, task.retry_at = "CANCELLED", None
        self.finished_jobs.add(job)
        for child in self.model.unfinished_children({job}):
            self.cancel_in_model(child)

    @rule(data=st.data())
    def cancel_task(self, data: st.DataObject) -> None:
        """Someone cancels one task."""
        if not self.model.tasks:
            return
        self.cancel_one(data.draw(st.sampled_from(sorted(self.model.tasks)), "task"))

    def cancel_one(self, key: int) -> None:
        task = self.model.tasks[key]
        answers = self.run(user_actions.cancel_tasks(self.db, [task.key], now=self.now))
        if self.model.ended(task.key):
            assert answers == {task.key: Cancellation.OVER}
            return
        if task.status == "CLAIMED":
            task.cancel_requested = True
        else:
            task.status, task.retry_at = "CANCELLED", None
        for child in self.model.unfinished_children_of(task.key):
            self.cancel_in_model(child)
        self.model.settle()

    @rule(paused=st.booleans())
    def pause_the_queue(self, paused: bool) -> None:
        self.run((user_actions.pause_queue if paused else user_actions.resume_queue)(self.db, "default"))
        self.model.is_paused = paused

    @rule(job=jobs)
    def retry(self, job: int) -> None:
        if not job:
            return
        self.run(user_actions.retry_failed_tasks(self.db, job, cancelled=True, now=self.now))
        self.revive(
            {t.key for t in self.model.tasks.values() if t.job == job and self.model.is_unreachable(t.key)}, job
        )

    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        """Reset a task and everything downstream; running attempts lose their leases."""
        if not self.model.tasks:
            return
        self.clear_one(data.draw(st.sampled_from(sorted(self.model.tasks)), "task"))

    def clear_one(self, key: int) -> None:
        task = self.model.tasks[key]
        steps = self.model.undone_steps(task.job, {key})
        downstream = set[int]().union(*(self.model.downstream(root) for root in (key, *steps)))
        cleared = self.run(user_actions.clear_tasks(self.db, task.key, now=self.now))
        assert cleared == downstream & self.model.tasks.keys()
        self.model.reset(downstream)
        self.finished_jobs.discard(task.job)
        self.model.settle()
        if self.model.job_status(task.job) == "open":
            self.model.expired.discard(task.job)

    @rule()
    def redrive(self) -> None:
        dead = {t.key for t in self.model.tasks.values() if t.status == "DEAD_LETTER"}
        self.run(user_actions.redrive_dead_letters(self.db, now=self.now))
        for job in {self.model.tasks[key].job for key in dead}:
            self.revive({key for key in dead if self.model.tasks[key].job == job}, job)

    def revive(self, roots: set[int], job: int) -> None:
        """Failed tasks and those cancelled because of them are retried, unless they still cannot run."""
        if not roots:
            return
        if steps := self.model.undone_steps(job, {key for key in roots if self.model.tasks[key].cause is None}):
            restarted = steps | {key for key in roots if self.model.tasks[key].cause is None}
            self.model.reset(set[int]().union(*(self.model.downstream(key) for key in restarted)))
        else:
            self.restart(roots, job)
        self.finished_jobs.discard(job)
        self.model.settle()
        if self.model.job_status(job) == "open":
            self.model.expired.discard(job)

    def restart(self, roots: set[int], job: int) -> None:
        restarted: set[int] = set()
        for task in self.model.tasks.values():
            if task.key in roots or (task.job == job and task.status == "CANCELLED" and task.cause is not None):
                restarted.add(task.key)
                task.waits_until = task.waits_for = None
                task.status, task.cause, task.retry_at, task.failures = "PENDING", None, None, 0
                task.cancel_requested = False
                if task.returned is not None and all(
                    self.model.succeeded(returned, skip_counts=True) for returned in task.returned
                ):
                    task.returned = None  # no returned task is left: it runs again
        for handler in self.model.handlers(restarted):
            self.model.reset(self.model.downstream(handler.key))

    @rule(who=st.booleans())
    def elect(self, who: bool) -> None:
        worker = self.worker if who else self.other
        term = self.run(queue.lead(self.db, worker, term_seconds=20, now=self.now))
        if term is not None:
            assert term >= self.term
            self.term = term

    @invariant()
    def the_database_agrees(self) -> None:
        if not hasattr(self, "db"):
            return
        rows = self.run(self.db.fetch("SELECT id, status::text FROM tasks WHERE type LIKE 't%'"))
        assert {row["id"]: row["status"] for row in rows} == {t.key: t.status for t in self.model.tasks.values()}
        for row in self.run(self.db.fetch("SELECT id, status::text, completed_at FROM jobs")):
            expected = self.model.job_status(row["id"])
            assert (row["completed_at"] is None) == (expected == "open")
            assert expected in ("open", row["status"])
        findings = self.run(check_invariants(self.db, grace_seconds=1e9))
        assert findings == [], (findings, INVARIANTS)


@pytest.fixture
def life(aaiclick_postgres: PostgresEndpoint) -> Iterator[Life]:
    """The state machine with rules called explicitly."""
    loop = asyncio.new_event_loop()
    machine = type("LifeHere", (Life,), {"endpoint": aaiclick_postgres, "loop": loop})()
    machine.begin()
    yield machine
    machine.the_database_agrees()
    machine.teardown()
    loop.close()


def make_compensator(steps: list[int]) -> NewTask:
    kwargs = {"steps": [{"task_id": str(key)} for key in steps], "failure": {"object_type": "failure"}}
    options = TaskOptions(MAX_ATTEMPTS, when="failed")
    task = NewTask(get_snowflake_id(), "", COMPENSATOR, json.dumps(kwargs), options=options)
    task.type = f"t{task.id}"
    return task


def make_compensation(step: int) -> NewTask:
    kwargs = {"result": {"object_type": "task", "task_id": str(step)}}
    task = NewTask(get_snowflake_id(), "", "m.undo", json.dumps(kwargs), options=TaskOptions(MAX_ATTEMPTS))
    task.type = f"t{task.id}"
    return task


def tasks(count: int, group: int | None = None) -> list[NewTask]:
    return [
        NewTask(get_snowflake_id(), "task", group_id=group, options=TaskOptions(MAX_ATTEMPTS)) for _ in range(count)
    ]


def test_completion_after_cancel_then_retry_keeps_the_groups_right(life: Life) -> None:
    """Regression: the group was complete by its counters but not marked, so its dependents waited for ever."""
    group, dependents = NewGroup(get_snowflake_id(), "g"), tasks(2)
    member = tasks(1, group.id)
    job = life.submit_plan(
        get_snowflake_id(),
        Plan([*member, *dependents], [group], [(group.id, dependent.id) for dependent in dependents]),
    )
    claims = life.claim(limit=2)
    life.cancel(job=job)
    life.complete(claims=claims)
    life.the_database_agrees()
    life.retry(job=job)
    life.the_database_agrees()
    for _ in range(2):
        life.complete(claims=life.claim(limit=3))
    assert {task.status for task in life.model.tasks.values()} == {"COMPLETED"}


def test_claim_promotes_every_due_retry_it_does_not_take(life: Life) -> None:
    """A claim with too few ready tasks promotes all due retries, and claims up to its limit."""
    life.submit_plan(get_snowflake_id(), Plan(tasks(3), [], []))
    life.fail(claims=life.claim(limit=3), permanent=False, delay=0.0)
    life.claim(limit=1)
    life.the_database_agrees()
    assert sorted(task.status for task in life.model.tasks.values()) == ["CLAIMED", "PENDING", "PENDING"]


def test_returned_tasks_after_cancel_are_cancelled(life: Life) -> None:
    [task] = new = tasks(1)
    job = life.submit_plan(get_snowflake_id(), Plan(new, [], []))
    claims = life.claim(limit=1)
    [added] = more = tasks(1)
    life.grow_plan(claims[0], Plan(more, [], []))
    life.cancel(job=job)
    life.return_tasks(claims[0], [added.id])
    assert life.model.tasks[task.id].status == "CANCELLED"


def test_task_adds_a_handler_that_has_no_other_predecessor(life: Life) -> None:
    """Regression: the handler became its own predecessor, which PostgreSQL refused."""
    [task] = new = tasks(1)
    life.submit_plan(get_snowflake_id(), Plan(new, [], []))
    claims = life.claim(limit=1)
    handler = NewTask(get_snowflake_id(), "task", options=TaskOptions(MAX_ATTEMPTS, when="ended"))
    life.grow_plan(claims[0], Plan([handler], [], []))
    life.complete(claims=claims)
    life.complete(claims=life.claim(limit=1))
    assert [life.model.tasks[key].status for key in (task.id, handler.id)] == ["COMPLETED", "COMPLETED"]


def test_clear_after_a_group_that_cannot_complete_cancels_the_task_again(life: Life) -> None:
    """Regression: the group was still marked as failed, so the task after it was not cancelled and waited for ever."""
    group, [dependent] = NewGroup(get_snowflake_id(), "g"), tasks(1)
    plan = Plan([dependent, *tasks(1, group.id)], [group], [(group.id, dependent.id)])
    life.cancel(job=life.submit_plan(get_snowflake_id(), plan))
    life.clear_one(dependent.id)
    assert life.model.tasks[dependent.id].status == "CANCELLED"


@pytest.mark.parametrize(("succeeds", "status"), [(True, "COMPLETED"), (False, "CANCELLED")])
def test_cleared_member_of_a_cancelled_group_decides_its_dependents(life: Life, succeeds: bool, status: str) -> None:
    """Regression: a group that failed with its job could not complete or fail again, so its dependents waited."""
    group, [dependent] = NewGroup(get_snowflake_id(), "g"), tasks(1)
    [member] = tasks(1, group.id)
    plan = Plan([dependent, member], [group], [(group.id, dependent.id)])
    life.cancel(job=life.submit_plan(get_snowflake_id(), plan))
    life.clear_one(member.id)
    if succeeds:
        life.complete(claims=life.claim(limit=1))
        life.complete(claims=life.claim(limit=1))
    else:
        life.fail(claims=life.claim(limit=1), permanent=True, delay=0.0)
    assert life.model.tasks[dependent.id].status == status


def test_redrive_leaves_tasks_after_another_failed_group_cancelled(life: Life) -> None:
    """Regression: the failure of the group had another cause than the cancellation of the task after it."""
    group, [dead, dependent] = NewGroup(get_snowflake_id(), "g"), tasks(2)
    [member] = tasks(1, group.id)
    edges = [(dead.id, dependent.id), (group.id, dependent.id)]
    life.submit_plan(get_snowflake_id(), Plan([dead, dependent, member], [group], edges))
    claims = {claim.lease.task_id: claim for claim in life.claim(limit=2)}
    life.fail(claims=[claims[dead.id]], permanent=False, delay=0.0)
    life.fail(claims=life.claim(limit=1), permanent=False, delay=0.0)
    life.fail(claims=[claims[member.id]], permanent=True, delay=0.0)
    life.redrive()
    assert life.model.tasks[dependent.id].status == "CANCELLED"


def test_clear_of_another_task_does_not_skip_the_handler_of_a_job_that_timed_out(life: Life) -> None:
    [before, other] = new = tasks(2)
    handler = NewTask(get_snowflake_id(), "task", options=TaskOptions(MAX_ATTEMPTS, when="failed"))
    job = life.submit_plan(get_snowflake_id(), Plan([*new, handler], [], [(before.id, handler.id)]))
    life.cancel(job=job, expired=True)
    life.clear_one(other.id)
    life.reap()
    life.the_database_agrees()
    assert life.claim(limit=2)
    assert life.model.tasks[handler.id].status == "CLAIMED"


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_handler_added_beside_returned_tasks_counts_its_predecessors(life: Life, is_cancelled: bool) -> None:
    """Regression: the dependency of the handler on its adder was deleted, and still counted."""
    life.submit_plan(get_snowflake_id(), Plan(tasks(1), [], []))
    claims = life.claim(limit=1)
    handler = NewTask(get_snowflake_id(), "task", options=TaskOptions(MAX_ATTEMPTS, when="ended"))
    [added] = more = tasks(1)
    life.grow_plan(claims[0], Plan([handler, *more], [], []))
    if is_cancelled:
        life.cancel_one(handler.id)
    life.return_tasks(claims[0], [added.id])
    life.the_database_agrees()
    life.complete(claims=life.claim(limit=2))
    life.complete(claims=life.claim(limit=2))
    assert life.model.tasks[handler.id].status == ("CANCELLED" if is_cancelled else "COMPLETED")


@pytest.mark.timeout(int(os.environ.get("MACHINE_TIMEOUT", "600")))
def test_random_operations_keep_invariants(aaiclick_postgres: PostgresEndpoint) -> None:
    loop = asyncio.new_event_loop()
    try:
        machine = type("LifeHere", (Life,), {"endpoint": aaiclick_postgres, "loop": loop})
        lives = int(os.environ.get("MACHINE_LIVES", "25"))
        steps = int(os.environ.get("MACHINE_STEPS", "25"))
        options = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
        if (
            not ALL_CASES and "MACHINE_LIVES" not in os.environ
        ):  # the same operations each time; no search for the shortest failure, which takes minutes
            options |= {"derandomize": True, "phases": [Phase.generate]}
        run_state_machine_as_test(machine, settings=settings(max_examples=lives, stateful_step_count=steps, **options))
    finally:
        loop.close()
