"""A model of the queue in plain Python: tasks and groups, their dependencies and statuses.

It follows the rules of the requirements, without counters or locks.
"""

from __future__ import annotations

from datetime import timedelta


class Node:
    def __init__(
        self, key: int, job: int, group: int | None, previous: set[int], critical: bool = True, when: str | None = None
    ) -> None:
        self.key, self.job, self.group, self.previous, self.when = key, job, group, previous, when
        self.status, self.cause, self.failures, self.attempt = "PENDING", None, 0, 0
        self.retry_at: timedelta | None = None
        self.waits_until: timedelta | None = None
        self.waits_for: str | None = None
        """An event, a decision, a poll, or the end of a job."""
        self.waits_for_job: int | None = None
        self.lease_until: timedelta | None = None
        self.cancel_requested = False
        self.is_rated = False
        self.is_judged = False
        """It is a handler, and was not skipped when its predecessors had ended: this is decided once."""
        self.critical, self.passed_over = critical, False
        """It is not critical and has finally failed: its dependents may run."""
        self.added: tuple[int, int] | None = None
        """The task and the attempt that added it."""
        self.returned: set[int] | None = None
        """Returned tasks that it waits for."""
        self.completed_at = timedelta()
        self.steps: list[int] = []
        """Tasks that it undoes: it is a compensator."""


class Model:
    """Tasks and groups, by id."""

    def __init__(self) -> None:
        self.tasks: dict[int, Node] = {}
        self.groups: dict[int, Node] = {}
        self.clock = timedelta()
        self.event_until = timedelta()
        """When the last event expires."""
        self.parents: dict[int, int] = {}
        """Child job → the task that submitted it."""
        self.expired: set[int] = set()
        """Jobs that exceeded their timeout."""
        self.is_paused = False
        self.rated_claims: list[timedelta] = []
        """Times of claims of tasks with a rate that binds."""

    def unfinished_children(self, jobs: set[int]) -> list[int]:
        """Children of jobs that have not ended."""
        parents = {child: self.tasks[task].job for child, task in self.parents.items() if task in self.tasks}
        return [child for child, job in sorted(parents.items()) if job in jobs and self.job_status(child) == "open"]

    def unfinished_children_of(self, task: int) -> list[int]:
        return [child for child, parent in sorted(self.parents.items())
                if parent == task and self.job_status(child) == "open"]  # fmt: skip

    def node(self, key: int) -> Node:
        return self.tasks[key] if key in self.tasks else self.groups[key]

    def succeeded(self, key: int, skip_counts: bool = False) -> bool:
        if self.node(key).status == "SKIPPED":
            return skip_counts
        if key in self.tasks:
            return self.tasks[key].status == "COMPLETED" or self.tasks[key].passed_over
        members = [n for n in (*self.tasks.values(), *self.groups.values()) if n.group == key]
        return self.opened(key) and all(self.succeeded(member.key, skip_counts=True) for member in members)

    def opened(self, group: int) -> bool:
        node = self.groups[group]
        return (
            node.status != "SKIPPED"
            and all(self.succeeded(p) for p in node.previous)
            and (node.group is None or self.opened(node.group))
        )

    def ended(self, key: int) -> bool:
        task = self.tasks[key]
        return task.status in ("COMPLETED", "SKIPPED", "CANCELLED", "DEAD_LETTER") or self.failed(key)

    def failed(self, key: int) -> bool:
        task = self.tasks[key]
        return task.status == "DEAD_LETTER" or (task.status == "FAILED" and task.retry_at is None)

    def has_expired(self, key: int) -> bool:
        """Return whether a task was cancelled with its job, which exceeded its timeout and has no failed task."""
        task = self.tasks[key]
        failed = any(t.job == task.job and self.failed(t.key) and not t.passed_over for t in self.tasks.values())
        return task.status == "CANCELLED" and task.job in self.expired and not failed

    def startable(self, task: Node) -> bool:
        """Return whether all predecessors have completed, or have ended if it is a handler."""
        if task.when in ("failed", "ended"):
            return all(self.ended(p) for p in task.previous)
        met = all(self.succeeded(p, task.when == "any") for p in task.previous)
        return met and (task.group is None or self.opened(task.group))

    def handlers(self, keys: set[int]) -> list[Node]:
        return [t for t in self.tasks.values() if t.when in ("failed", "ended") and t.previous & keys]

    def settle(self) -> None:
        """Apply everything that follows from the current statuses, until nothing changes."""
        before = None
        while before != (before := [(n.key, n.status) for n in (*self.tasks.values(), *self.groups.values())]):
            self.finish_returned()
            self.cancel_unreachable()
            self.skip_unreachable()
            for task in self.tasks.values():
                if task.when == "failed" and task.status == "PENDING" and not task.is_judged and self.startable(task):
                    task.is_judged = any(self.failed(p) or self.has_expired(p) for p in task.previous)
                    task.status = "PENDING" if task.is_judged else "SKIPPED"
                if task.waits_for == "job" and self.job_status(task.waits_for_job or 0) != "open":
                    task.waits_until = task.waits_for = None

    def skip_unreachable(self) -> None:
        """Skip tasks and groups after skipped ones."""
        for node in (*self.groups.values(), *self.tasks.values()):
            skipped = [self.node(p).status == "SKIPPED" for p in node.previous]
            cause = (skipped and all(skipped)) if node.when == "any" else any(skipped)
            cause = cause or (node.group is not None and self.groups[node.group].status == "SKIPPED")
            if node.key in self.groups:
                waits = node.status == "PENDING" and not self.succeeded(node.key) and not self.is_unreachable(node.key)
            else:
                waits = node.status == "PENDING" and node.returned is None and node.when not in ("failed", "ended")
            if cause and (waits or (node.key in self.tasks and node.retry_at is not None)):
                node.status, node.retry_at = "SKIPPED", None

    def claimable(self) -> set[int]:
        return set() if self.is_paused else self.due()

    def due(self) -> set[int]:
        return {
            t.key for t in self.tasks.values()
            if self.startable(t) and t.returned is None and (t.waits_until is None or t.waits_until <= self.clock)
            and (t.status == "PENDING" or (t.retry_at is not None and t.retry_at <= self.clock))
        }  # fmt: skip

    def ready(self) -> set[int]:
        """Return the tasks that are claimable without a promotion."""
        ready = (self.tasks[key] for key in self.due())
        return {task.key for task in ready if task.status == "PENDING" and task.waits_until is None}

    def promote(self) -> None:
        """Make due retries PENDING."""
        for task in self.tasks.values():
            if task.retry_at is not None and task.retry_at <= self.clock:
                task.status, task.retry_at = "PENDING", None
            if task.waits_until is not None and task.waits_until <= self.clock:
                task.waits_until = task.waits_for = None

    def wait(self, key: int, wait_type: str, seconds: float, job: int | None = None) -> None:
        """Let a running task wait, unless it was cancelled, its event was sent before, or the job has ended."""
        task = self.tasks[key]
        if task.cancel_requested:
            task.status = "CANCELLED"
            return
        task.status = "PENDING"
        if wait_type != "event" or self.event_until <= self.clock:
            task.waits_until, task.waits_for = self.clock + timedelta(seconds=seconds), wait_type
            task.waits_for_job = job

    def is_unreachable(self, key: int) -> bool:
        """Return whether a task or group can never complete in the current state."""
        if key in self.tasks and self.tasks[key].passed_over:
            return False
        if key in self.tasks:
            return self.tasks[key].status in ("CANCELLED", "DEAD_LETTER") or (
                self.tasks[key].status == "FAILED" and self.tasks[key].retry_at is None
            )
        if self.groups[key].status == "SKIPPED":
            return False
        members = [n.key for n in (*self.tasks.values(), *self.groups.values()) if n.group == key]
        return any(self.is_unreachable(m) for m in members) or self.is_blocked(key)

    def is_blocked(self, group: int) -> bool:
        node = self.groups[group]
        if node.status == "SKIPPED":
            return False
        return any(self.is_unreachable(p) for p in node.previous) or (
            node.group is not None and self.is_blocked(node.group)
        )

    def cancel_unreachable(self) -> None:
        """Cancel tasks that can no longer run."""
        changed = True
        while changed:
            changed = False
            for task in self.tasks.values():
                if task.when in ("failed", "ended"):
                    continue
                unreachable = any(self.is_unreachable(p) for p in (*task.previous, *(task.returned or ()))) or (
                    task.group is not None and self.is_blocked(task.group)
                )
                if unreachable and (task.status == "PENDING" or task.retry_at is not None):
                    task.status, task.retry_at, task.cause, changed = "CANCELLED", None, 1, True

    def count_rated_claims(self, period: timedelta) -> int:
        return sum(at > self.clock - period for at in self.rated_claims)

    def downstream(self, key: int) -> set[int]:
        """Return a task and everything after it. A waiting group includes its members."""
        nodes = (*self.tasks.values(), *self.groups.values())
        visited: set[tuple[int, bool]] = set()
        """Nodes, and whether they wait as a whole: a group around a task does not."""
        remaining = [(key, True)]
        while remaining:
            if (step := remaining.pop()) in visited:
                continue
            visited.add(step)
            current, waits = step
            remaining += [(node.key, True) for node in nodes if current in node.previous]
            if (group := self.node(current).group) is not None:
                remaining.append((group, False))
            if current in self.groups and waits:
                remaining += [(node.key, True) for node in nodes if node.group == current]
        return {current for current, _ in visited}

    def reset(self, keys: set[int]) -> None:
        for key in keys:
            node = self.node(key)
            node.status, node.cause, node.retry_at, node.failures = "PENDING", None, None, 0
            node.cancel_requested = node.passed_over = node.is_judged = False
            node.waits_until = node.waits_for = node.returned = None

    def completed_steps(self, compensator: Node) -> list[int]:
        """Return the steps to undo, in the reverse order of their completion."""
        completed = [self.tasks[key] for key in compensator.steps if self.tasks[key].status == "COMPLETED"]
        return [step.key for step in sorted(completed, key=lambda step: (step.completed_at, step.key), reverse=True)]

    def undone_steps(self, job: int, roots: set[int]) -> set[int]:
        """Return the steps to run again with `roots`: those of which the compensation has begun."""
        if all(self.belongs_to_handler(key) for key in roots):
            return set()
        compensators = [t for t in self.tasks.values() if t.job == job and t.steps and t.status == "COMPLETED"]
        return {
            step
            for compensator in compensators
            for step, undo in zip(self.completed_steps(compensator), self.compensations(compensator), strict=False)
            if undo.attempt > 0
        }

    def belongs_to_handler(self, key: int) -> bool:
        """Return whether it is a handler, or was added by one: the first cancellation of a job leaves it."""
        task = self.tasks[key]
        adder = None if task.added is None else task.added[0]
        return task.when in ("failed", "ended") or (adder is not None and self.belongs_to_handler(adder))

    def compensations(self, compensator: Node) -> list[Node]:
        added = (compensator.key, compensator.attempt)
        return sorted((t for t in self.tasks.values() if t.added == added), key=lambda task: task.key)

    def finish_returned(self) -> None:
        """Complete tasks with the last of the tasks they returned."""
        waiting = [t for t in self.tasks.values() if t.status == "PENDING" and t.returned is not None]
        done = [t for t in waiting if all(self.succeeded(key, skip_counts=True) for key in t.returned or ())]
        for task in done:
            task.status, task.returned, task.completed_at = "COMPLETED", None, self.clock
        if done:
            self.finish_returned()

    def remove_additions(self, task: int, attempt: int | None) -> None:
        """Remove what other attempts of a task have added, recursively."""
        for nodes in (self.tasks, self.groups):
            for node in list(nodes.values()):
                if node.added is not None and node.added[0] == task and node.added[1] != attempt and node.key in nodes:
                    del nodes[node.key]
                    self.remove_additions(node.key, None)
                    for other in (*self.tasks.values(), *self.groups.values()):
                        other.previous.discard(node.key)

    def staged(self, key: int) -> bool:
        """Return whether the task that added it has not completed yet."""
        added = {**self.tasks, **self.groups}[key].added
        adder = self.tasks.get(added[0]) if added else None
        return adder is not None and adder.status != "COMPLETED" and adder.returned is None

    def job_status(self, job: int) -> str:
        states = [t for t in self.tasks.values() if t.job == job]
        if any(t.status in ("PENDING", "CLAIMED") or t.retry_at is not None for t in states):
            return "open"
        if any(t.status in ("FAILED", "DEAD_LETTER") and not t.passed_over for t in states) or job in self.expired:
            return "FAILED"
        return "CANCELLED" if any(t.status == "CANCELLED" for t in states) else "COMPLETED"
