"""Jobs, tasks and groups as Python objects, with their dependencies.

    extract >> transform >> load
    source >> [left, right] >> report

They become rows when a job is submitted; `get_task` and `get_job` return the same classes.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, overload
from uuid import UUID

from aaiclick.errors import SubmitError
from aaiclick.orchestration.task_placeholder import OwnField, Placeholder
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.enums import DEFAULT_ORG_ID, JobStatus, TaskStatus
from aaiclick.store.select_metaclass import Selectable
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskOptions

if TYPE_CHECKING:
    from aaiclick.api.jobs import GroupProgress

N = TypeVar("N", bound="Node")
Nodes = Sequence["Node"]
SELECT_ITEM = "aaiclick.orchestration.select_result_item.select_item"


class Node(metaclass=Selectable):
    """Base of Task and Group: a node of a job's dependency graph."""

    __slots__ = ("handlers", "id", "job_id", "name", "predecessors", "submitted")
    kind: ClassVar[str] = "node"

    def __init__(self, name: str, id: int | None = None) -> None:  # noqa: A002  (the column's name)
        self.id = get_snowflake_id() if id is None else id
        self.name = name
        self.job_id: int | None = None
        self.predecessors: list[Node] = []
        self.handlers: list[Task] = []
        """Tasks that run after its end."""
        self.submitted = False

    def depends_on(self, *predecessors: Node) -> Node:
        """Add predecessors; returns itself."""
        for other in predecessors:
            if not isinstance(other, Node):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SubmitError(
                    f"{self!r} cannot wait for {other!r}.", remedy="Tasks and Groups wait for Tasks and Groups."
                )
            if self.submitted:
                raise SubmitError(
                    f"{self!r} is submitted already and cannot be made to wait for more.",
                    remedy="Declare dependencies before submitting what waits.",
                )
            self.predecessors.append(other)
        return self

    @overload
    def __rshift__(self, other: N) -> N: ...
    @overload
    def __rshift__(self, other: Nodes) -> Nodes: ...
    def __rshift__(self, other: Node | Nodes) -> Node | Nodes:
        """`a >> b`: b waits for a; returns b, so that chains read from left to right."""
        for node in _as_nodes(other):
            node.depends_on(self)
        return other

    def __lshift__(self: N, other: Node | Nodes) -> N:
        """`a << b`: a waits for b; returns a."""
        self.depends_on(*_as_nodes(other))
        return self

    def __rrshift__(self: N, other: Nodes) -> N:
        """`[a, b] >> c`: c waits for both; returns c."""
        self.depends_on(*_as_nodes(other))
        return self

    def __rlshift__(self, other: Nodes) -> Nodes:
        """`[a, b] << c`: both wait for c; returns the list."""
        for node in _as_nodes(other):
            node.depends_on(self)
        return other

    def __repr__(self) -> str:
        return f"{self.kind.capitalize()}({self.name!r}, id={self.id})"


def _as_nodes(nodes: Node | Nodes) -> Nodes:
    if isinstance(nodes, Node):
        return [nodes]
    if isinstance(nodes, list | tuple):
        return cast("Nodes", nodes)
    raise SubmitError(
        f"A dependency cannot be declared on {nodes!r:.80}.", remedy="Tasks and Groups wait for Tasks and Groups."
    )


class Group(Node):
    """Tasks and groups with common dependencies. An empty group completes when its predecessors have.

    ```python
    week = Group("week", [load.task("2026-11-16"), load.task("2026-11-17")])
    await create_job("weekly", week >> total.task([1]))
    ```
    """

    __slots__ = ("members", "parent", "parent_group_id")
    kind = "group"

    def __init__(
        self,
        name: str,
        members: Sequence[Node] = (),
        *,
        parent: Group | None = None,
        finally_: Task | None = None,
        id: int | None = None,  # noqa: A002
    ) -> None:
        """`finally_` runs when all members have ended in any way."""
        super().__init__(name, id)
        self.members: list[Node] = []
        self.parent: Group | None = None
        self.parent_group_id: int | None = None
        if parent is not None:
            parent.add(self)
        self.add(*members)
        if finally_ is not None:
            finally_.options = replace(finally_.options, when="ended")
            finally_.depends_on(self)
            self.handlers.append(finally_)

    def add(self, *nodes: Node) -> Group:
        """Put tasks or groups into this one; returns itself."""
        for node in nodes:
            holder = node.group if isinstance(node, Task) else node.parent if isinstance(node, Group) else None
            if holder is not None and holder is not self:
                raise SubmitError(f"{node!r} is in {holder!r} already.", remedy="A task or group lies in one group.")
            if isinstance(node, Task):
                node.group, node.group_id = self, self.id
            elif isinstance(node, Group):
                node.parent, node.parent_group_id = self, self.id
            self.members.append(node)
        return self


class Task(Placeholder, Node):
    """One call of a function, executed by a worker.

    ```python
    first, second = load.task("2026-11-16"), load.task("2026-11-17")
    await create_job("two days", first >> second)
    ```
    """

    __slots__ = (
        "attempt", "claimed_at", "compensate", "completed_at", "created_at", "entrypoint", "error", "failures", "group",
        "group_id", "idempotency_key", "item_count", "kwargs", "log_path", "options", "org_id", "result", "started_at",
        "status", "type", "worker_id",
    )  # fmt: skip
    kind = "task"

    def __init__(
        self,
        entrypoint: str,
        kwargs: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        group: Group | None = None,
        options: TaskOptions = DEFAULT_OPTIONS,
        id: int | None = None,  # noqa: A002  (the column's name)
    ) -> None:
        super().__init__(name or entrypoint, id)
        self.entrypoint: str | None = entrypoint
        self.type = entrypoint
        self.kwargs: dict[str, Any] = dict(kwargs or {})
        self.options = options
        self.idempotency_key: str | None = None
        self.compensate: Callable[..., object] | None = None
        """Function that undoes the task if its job fails after it has completed."""
        self.item_count = 0
        """Number of items, if the function is annotated to return a tuple."""
        self.group: Group | None = None
        self.group_id: int | None = None
        self.status = TaskStatus.PENDING
        self.org_id: UUID = DEFAULT_ORG_ID
        self.attempt = 0
        self.failures = 0
        self.result: Any = None
        self.error: str | None = None
        self.log_path: str | None = None
        self.worker_id: int | None = None
        self.created_at: datetime | None = None
        self.claimed_at: datetime | None = None
        self.started_at: datetime | None = None
        self.completed_at: datetime | None = None
        if group is not None:
            group.add(self)

    def __iter__(self) -> Iterator[object]:
        """Tasks of the items of a tuple; raises PlaceholderError for other results."""
        if not self.item_count:
            return super().__iter__()
        return iter(
            [
                Task(SELECT_ITEM, {"values": self, "index": index}, name=f"{self.name}[{index}]")
                for index in range(self.item_count)
            ]
        )

    def _is_compared_as_task(self, other: object) -> bool:
        return isinstance(other, Node)

    @classmethod
    def from_row(cls, row: Any) -> Task:
        """Task of a row of `tasks`; its kwargs and result stay serialised."""
        task = cls(
            row["entrypoint"] or row["type"], json.loads(row["kwargs"]), options=TaskOptions.from_row(row), id=row["id"]
        )
        for name in (
            "job_id", "group_id", "entrypoint", "type", "idempotency_key", "org_id", "attempt", "failures", "error",
            "log_path", "worker_id", "created_at", "claimed_at", "started_at", "completed_at",
        ):  # fmt: skip
            setattr(task, name, row[name])
        task.status = TaskStatus(row["status"])
        task.result = None if row["result"] is None else json.loads(row["result"])
        task.submitted = True
        return task


class ResultTask(Task):
    """Task of a call `load()`, which type checkers take for the returned value: its own fields are not readable yet."""

    __slots__ = ()

    def _is_compared_as_task(self, other: object) -> bool:  # noqa: ARG002
        return False


OWN_FIELDS = (
    "id", "job_id", "name", "attempt", "claimed_at", "completed_at", "created_at", "error", "failures", "group",
    "kwargs", "log_path", "result", "started_at", "status", "type", "worker_id",
)  # fmt: skip
for _name in OWN_FIELDS:  # of the instances: read from the class, they would be columns
    _slot = next(vars(base)[_name] for base in Task.__mro__ if _name in vars(base))
    setattr(ResultTask, _name, OwnField(_name, _slot))


@dataclass(slots=True)
class Job(metaclass=Selectable):
    """One run of a workflow. Its fields are as of the submission or the last `refresh`, `wait` or `result`.

    ```python
    submitted = await nightly("2026-11-16")
    (await submitted.refresh()).total_tasks  # 2
    ```
    """

    id: int
    name: str
    status: JobStatus = JobStatus.PENDING
    org_id: UUID = DEFAULT_ORG_ID
    total_tasks: int = 0
    open_tasks: int = 0
    failed_tasks: int = 0
    cancelled_tasks: int = 0
    timeout_seconds: float | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str | None = None
    parent_job_id: int | None = None
    parent_task_id: int | None = None

    @classmethod
    def from_row(cls, row: Any) -> Job:
        return cls(
            row["id"], row["name"], JobStatus(row["status"]), row["org_id"], row["total_tasks"], row["open_tasks"],
            row["failed_tasks"], row["cancelled_tasks"], row["timeout_seconds"], row["created_at"], row["started_at"],
            row["completed_at"], row["error"], row["parent_job_id"], row["parent_task_id"],
        )  # fmt: skip

    async def refresh(self) -> Job:
        """Update the fields (`status`, counts, times, `error`) and return the job."""
        await _handle().refresh_job(self)
        return self

    async def wait(self, timeout_seconds: float | None = None) -> Job:
        """Wait until a worker has run the job and return it; raises TimeoutError."""
        await _handle().wait_for_job(self, timeout_seconds)
        return self

    async def result(self, annotation: object = None, *, timeout_seconds: float | None = None) -> Any:
        """Wait for the job and return the result of its final task, or a list if it has several.

        Values are of the type `annotation` (`pandas.DataFrame`, a dataclass, …); by default of the types in the
        annotation of the task's function, if this process has imported it, else of plain types. Raises JobFailedError
        if the job has failed or was cancelled.
        """
        await _handle().wait_for_job(self, timeout_seconds)
        return await _handle().load_result(self, annotation)

    async def logs(self) -> str:
        """Output of the job's tasks so far."""
        return await _handle().read_logs(self)

    async def progress(self) -> list[GroupProgress]:
        """Numbers of tasks of each group; the group "" has the tasks without a group."""
        return await _handle().load_progress(self)

    async def cancel(self) -> bool:
        """Cancel the job; False if it had ended before."""
        return await _handle().cancel(self)

    def _repr_html_(self) -> str:
        """The job as of its fields: a notebook cannot wait for the database while it shows a value."""
        jobs = importlib.import_module("aaiclick.api.jobs")
        completed = self.total_tasks - self.open_tasks - self.failed_tasks - self.cancelled_tasks
        progress = jobs.GroupProgress(
            group="", total=self.total_tasks, completed=completed, running=0, failed=self.failed_tasks,
            cancelled=self.cancelled_tasks, rows=None, seconds=None,
        )  # fmt: skip
        return importlib.import_module("aaiclick.api.job_html").render_job(
            self.name, self.id, self.status.value, self.error, [progress], self.started_at, self.completed_at
        )


def _handle() -> Any:
    """Module `job_handle`, which needs a connection; graphs are built without one."""
    return importlib.import_module("aaiclick.orchestration.job_handle")
