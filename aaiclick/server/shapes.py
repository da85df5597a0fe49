"""What comes in and what goes out, as types: they are the validation and the OpenAPI document.

Snowflakes leave as strings: JavaScript loses their last digits. Times are RFC 3339 with their zone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Path
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    model_validator,
)

from aaiclick.store.words import Cancellation

LARGEST_ID = 2**63 - 1
MANY = 10_000


def storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    if "\x00" in text:
        raise ValueError("a NUL character")
    return text


Name = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(storable)]
Slug = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(storable)]
Entrypoint = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[A-Za-z_][\w.:]*$")]
Id = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,18}$"), Field(examples=["7265312768204800"])]
PathId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="A snowflake")]
Arguments = dict[str, Any]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400)]
JobState = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
TaskState = Literal["PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"]
Scope = Literal["reader", "writer", "admin", "worker"]
Role = Literal["reader", "writer", "admin"]


class Sent(BaseModel):
    """Something that a client sends: an unknown field is a mistake, not a wish."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class RetryPolicy(Sent):
    """How long to wait before trying again."""

    base_seconds: Annotated[float, Field(ge=0, le=86_400)] = 1.0
    cap_seconds: Annotated[float, Field(ge=0, le=86_400)] = 3600.0


class Manner(Sent):
    """How a task is to be run."""

    queue: Name = "default"
    priority: Annotated[int, Field(ge=-32768, le=32767)] = 0
    max_attempts: Annotated[int, Field(ge=1, le=1000)] | None = None
    timeout_seconds: Seconds | None = None
    run_at: AwareDatetime | None = Field(default=None, description="Not before this time")
    retry_policy: RetryPolicy | None = None
    concurrency_key: Key | None = None
    concurrency_limit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    critical: bool = Field(default=True, description="Whether its final failure fails its job; else: dependents go on")


class NewItem(Manner):
    """A queue item: done by the handler of its type, or by its entry point."""

    type: Name = Field(examples=["email:send"])
    payload: Arguments = Field(default_factory=dict, examples=[{"to": "ada@example.org"}])
    entrypoint: Entrypoint | None = None
    idempotency_key: Key | None = None


class NewItems(Sent):
    """Several items at once: all of them, or none."""

    items: Annotated[list[NewItem], Field(min_length=1, max_length=MANY)]


class NewNode(Manner):
    """A task of a job. In `kwargs`, {"object_type": "task", "task": KEY} stands for what that task returns."""

    key: Key = Field(examples=["load"])
    entrypoint: Entrypoint = Field(examples=["myapp.steps.load"])
    kwargs: Arguments = Field(default_factory=dict)
    name: Name | None = None
    group: Key | None = None
    depends_on: Annotated[list[Key], Field(max_length=MANY)] = Field(default_factory=list)


class NewGroupNode(Sent):
    """A group: waits, and is waited for, as one."""

    key: Key
    name: Name | None = None
    parent: Key | None = None
    depends_on: Annotated[list[Key], Field(max_length=MANY)] = Field(default_factory=list)


class NewJob(Sent):
    """A job: one entry point, or a graph of tasks."""

    name: Name = Field(examples=["nightly"])
    entrypoint: Entrypoint | None = Field(default=None, examples=["myapp.steps.load"])
    kwargs: Arguments = Field(default_factory=dict, examples=[{"day": "2026-11-15"}])
    tasks: Annotated[list[NewNode], Field(max_length=MANY)] = Field(default_factory=list)
    groups: Annotated[list[NewGroupNode], Field(max_length=MANY)] = Field(default_factory=list)
    timeout_seconds: Seconds | None = None
    idempotency_key: Key | None = None

    @model_validator(mode="after")
    def _one_way(self) -> NewJob:
        if (self.entrypoint is None) == (not self.tasks):
            raise ValueError("give either 'entrypoint' (with 'kwargs') or 'tasks' (with 'groups')")
        if self.entrypoint is not None and self.groups:
            raise ValueError("'groups' go with 'tasks'")
        return self


class Created(BaseModel):
    """The id of what was made."""

    id: Id


class CreatedMany(BaseModel):
    """The ids of what was made, in the order of the request."""

    ids: list[Id]


class Changed(BaseModel):
    """How many tasks it concerned, and which (the first thousand)."""

    count: int
    ids: list[Id]


class Released(BaseModel):
    """How many tables were let go of."""

    tables: int


class Cancelled(BaseModel):
    """What a cancellation did: `cancelled`: it is over. `requested`: a worker still has it, and it will end as
    cancelled whatever that worker reports. `over`: it had ended before.
    """

    outcome: Cancellation


class Job(BaseModel):
    id: Id
    name: str
    status: JobState
    total_tasks: int
    open_tasks: int
    failed_tasks: int
    cancelled_tasks: int
    timeout_seconds: float | None
    created_at: datetime
    started_at: datetime | None
    restarted_at: datetime | None = Field(description="When what had failed, or was cleared, began again")
    completed_at: datetime | None
    deadline_at: datetime | None
    cancel_requested_at: datetime | None
    paused_at: datetime | None
    error: str | None


class Progress(BaseModel):
    """How far a group of a job is; the group "" is what is in none. Rows and seconds are those of finished chunks."""

    group: str
    total: int
    completed: int
    running: int
    failed: int
    cancelled: int
    rows: int | None
    seconds: float | None


class Result(BaseModel):
    """What a task returned, in words: its value, or the first rows of its table."""

    task_id: Id
    name: str
    value: str


class Event(BaseModel):
    """Something that happened to a job."""

    at: datetime
    kind: str = Field(examples=["created", "started", "attempt_failed", "ended"])
    task_id: Id | None = None
    attempt: int | None = None
    detail: str | None = None


class Task(BaseModel):
    id: Id
    job_id: Id | None
    group_id: Id | None
    type: str
    entrypoint: str | None
    queue: str
    status: TaskState
    readiness: str | None
    priority: int
    attempt: int
    failures: int
    max_attempts: int
    created_at: datetime
    available_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    worker_id: Id | None
    cause_id: Id | None
    partitions: list[str] | None = Field(description="Of a task of a DAG: those that it is about")
    made: str = Field(description="Of a task of a DAG: what it made, in words")
    error: str | None
    error_fingerprint: str | None


class Attempt(BaseModel):
    """An attempt that did not succeed."""

    attempt: int
    outcome: str
    charged: bool
    worker_id: Id | None
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime
    error: str | None
    error_fingerprint: str | None


class TaskDetail(Task):
    """A task with everything about it."""

    kwargs: Any
    result: Any
    timeout_seconds: float | None
    lease_expires_at: datetime | None
    idempotency_key: str | None
    concurrency_key: str | None
    attempts: list[Attempt]


class Reason(BaseModel):
    """One thing that a task waits for."""

    code: str
    words: str


class Log(BaseModel):
    """A part of a task's log."""

    text: str
    next_offset: int = Field(description="Where to read on, in bytes")
    ended: bool = Field(description="Whether the task is over: then this is all there will be")


class Choice(Sent):
    """Which dead letters: by id, or by what they have in common. Nothing named chooses nothing."""

    ids: Annotated[list[Id], Field(max_length=MANY)] | None = None
    type: Name | None = None
    fingerprint: Name | None = None
    all: bool = False

    @model_validator(mode="after")
    def _something(self) -> Choice:
        if not (self.ids or self.type or self.fingerprint or self.all):
            raise ValueError("name 'ids', 'type' or 'fingerprint', or say 'all'")
        return self


class Redrive(Choice):
    """Dead letters to start over; `per_second` spreads them."""

    per_second: Annotated[float, Field(ge=0.001, le=100_000)] | None = None


class DeadLetter(BaseModel):
    id: Id
    job_id: Id | None
    type: str
    queue: str
    failures: int
    completed_at: datetime
    error_fingerprint: str | None
    error: str | None


class DeadLetterGroup(BaseModel):
    """Dead letters that failed in the same way."""

    fingerprint: str | None
    count: int
    first: datetime
    last: datetime
    type: str
    example: Id
    error: str | None


OutboxState = Literal["Pending", "Failed"]


class OutboxEvent(BaseModel):
    """An event of a dataset that is not routed; a routed one is deleted."""

    id: Id
    job_id: Id | None
    dataset: str | None = Field(description="Its name; absent if there is no such dataset")
    status: OutboxState
    attempts: int
    created_at: datetime
    available_at: datetime = Field(description="When a Pending event is tried next")
    processed_at: datetime | None = Field(description="When it failed")
    cursor: str | None = Field(description="What identifies the update")
    last_error: str | None


class OutboxRetry(Sent):
    """Failed events to route again: by id, or all."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=MANY)] | None = None
    all: bool = False

    @model_validator(mode="after")
    def _one_choice(self) -> OutboxRetry:
        if (self.ids is None) != self.all:
            raise ValueError("name 'ids', or say 'all'")
        return self


class Worker(BaseModel):
    """A process that runs tasks. Where a shared one is and how busy, the operator alone sees."""

    id: Id
    status: Literal["ACTIVE", "IDLE", "STOPPED"]
    shared: bool
    queues: list[str]
    pool_size: int
    version: str | None
    started_at: datetime
    last_heartbeat: datetime
    stopped_at: datetime | None
    drain_requested_at: datetime | None = Field(description="When it was told to finish what it runs and end")
    is_leader: bool
    hostname: str | None = None
    pid: int | None = None
    tasks_completed: int | None = None
    tasks_failed: int | None = None


class LimitsIn(Sent):
    """Share and limits; what is left out is lifted."""

    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    max_running: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    rate_per_second: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    rate_burst: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class Queue(BaseModel):
    name: str
    ready: int
    scheduled: int
    blocked: int
    held: int
    running: int
    weight: int
    max_running: int | None
    rate_per_second: float | None
    rate_burst: int | None
    paused_at: datetime | None


class ObjectHead(BaseModel):
    table_id: str = Field(examples=["t7265312768204800"])
    name: str | None = Field(description="The name of a named Object")
    rows: int
    bytes: int
    changed_at: datetime


class ObjectSchema(ObjectHead):
    shape: Literal["scalar", "column", "table", "record"]
    columns: list[ColumnOut]


class ColumnOut(BaseModel):
    name: str
    type: str


class Preview(BaseModel):
    """Rows of an Object. Numbers past 2^53, decimals and bytes are text."""

    rows: list[dict[str, Any]]


class NewOrg(LimitsIn):
    name: Name
    slug: Slug


class OrgChange(LimitsIn):
    name: Name


class Org(BaseModel):
    id: UUID
    name: str
    slug: str
    weight: int
    max_running: int | None
    rate_per_second: float | None
    rate_burst: int | None
    paused_at: datetime | None
    created_at: datetime


class NewUser(Sent):
    external_id: Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(storable)]
    email: Name | None = None
    role: Role


class UserChange(Sent):
    email: Name | None = None
    role: Role
    disabled: bool = False


class User(BaseModel):
    id: UUID
    external_id: str
    email: str | None
    role: Role
    created_at: datetime
    disabled_at: datetime | None


class NewRole(Sent):
    slug: Slug
    name: Name


class RoleOut(BaseModel):
    id: UUID
    slug: str
    name: str
    created_at: datetime


class Membership(BaseModel):
    role_id: UUID
    user_id: UUID
    created_at: datetime


class NewKey(Sent):
    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=4)]
    user_id: UUID | None = None
    lifetime_seconds: Seconds | None = None


class KeyOut(BaseModel):
    id: UUID
    name: str
    prefix: str
    scopes: list[Scope]
    user_id: UUID | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


class KeyMade(KeyOut):
    """A new key with its text, which is shown this once."""

    key: str


class NewSecret(Sent):
    value: Annotated[SecretStr, Field(max_length=65_536, json_schema_extra={"writeOnly": True})]
    host: Annotated[str, StringConstraints(min_length=1, max_length=300)] | None = Field(
        default=None, description="Send it to this host only: api.example.com", examples=["api.example.com"]
    )


class SecretOut(BaseModel):
    """A secret without its value."""

    name: str
    host: str | None = Field(description="The only host that it is sent to")
    source: Literal["stored", "map"] = Field(description="Stored here, or an entry of the operator's map")
    created_at: datetime | None
    updated_at: datetime | None


class AuditEntry(BaseModel):
    id: Id
    at: datetime
    actor: str
    action: str
    target: str
    request_id: str | None
    detail: dict[str, Any]


class Whoami(BaseModel):
    """Who the credential stands for."""

    org_id: UUID
    actor: str
    scopes: list[str]


ObjectSchema.model_rebuild()
