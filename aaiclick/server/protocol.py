"""The task protocol as types: what workers without a database send, and what they get.

A lease is the right to one attempt: task, attempt and a token that only its holder was given. Everything that is said
about a task is said with its lease, and changes nothing if another attempt has begun.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, StringConstraints, model_validator

from aaiclick.orchestration.events import MAX_CURSOR_CHARACTERS
from aaiclick.orchestration.loops.keeper import TERM_SECONDS
from aaiclick.server.shapes import (
    MANY,
    Arguments,
    Entrypoint,
    Id,
    Key,
    Name,
    RetryPolicy,
    Seconds,
    Sent,
    storable,
)

Words = Annotated[str, StringConstraints(max_length=20_000), AfterValidator(storable)]
Short = Annotated[str, StringConstraints(max_length=1_000), AfterValidator(storable)]
TableName = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(storable)]
Queues = Annotated[list[Name], Field(max_length=1_000)]
Lasting = Annotated[float, Field(gt=0, le=30 * 86_400, description="How long a lease lasts unless it is kept")]
Wait = Annotated[float, Field(ge=0, le=60)]
Ran = Annotated[float, Field(ge=0, le=100 * 365 * 86_400, description="How long ago it began")]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]


class LeaseForm(Sent):
    """The right to one attempt of one task."""

    task_id: Id
    attempt: Annotated[int, Field(ge=1, le=2**31 - 1)]
    token: UUID
    linked: bool = Field(default=False, description="A hint that comes with the claim")


class PartitionForm(Sent):
    """What a partition has now, and what that was made of."""

    key: Words
    rows: Annotated[int, Field(ge=0, le=2**63 - 1)] | None
    digest: Short | None = None
    inputs_hash: Short | None = None


class UpdateForm(Sent):
    """New rows of a generation, which were published before."""

    dataset: UUID
    generation: UUID
    ticket: Annotated[int, Field(ge=0, le=2**63 - 1)]
    columns: dict[str, Any]
    schema_hash: Short
    partitions: Annotated[list[PartitionForm], Field(max_length=MANY + 1)]
    rows: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
    whole: bool = False
    changed: Annotated[list[Words], Field(max_length=MANY + 1)] | None = None


class EffectsForm(Sent):
    """What the completion of a task of a DAG writes: only about what its definition reads and makes."""

    outputs: dict[str, Any] = Field(default_factory=dict)
    input_versions: dict[str, Any] = Field(default_factory=dict)
    inputs: Annotated[list[tuple[UUID, Words, AwareDatetime]], Field(max_length=MANY * 10)] = Field(
        default_factory=list, description="Dataset, partition and when that was updated"
    )
    states: Annotated[list[tuple[UUID, Words, dict[str, Any]]], Field(max_length=MANY)] = Field(
        default_factory=list, description="Definition, key and state"
    )
    updates: Annotated[list[UpdateForm], Field(max_length=1_000)] = Field(default_factory=list)
    lineage: dict[UUID, Annotated[list[tuple[Words, UUID, Words]], Field(max_length=MANY)]] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Of each output dataset: column, input dataset, input column",
    )
    definition: UUID
    build: UUID | None = None


class Completed(Sent):
    """The attempt succeeded."""

    lease: LeaseForm
    result: Any = None
    seconds: Ran | None = None
    awaits: Annotated[list[Id], Field(max_length=MANY)] = Field(
        default_factory=list, description="Tasks that it added and returns: it completes when they have"
    )
    tables: Annotated[list[TableName], Field(max_length=MANY)] | None = Field(
        default=None, description="Tables within the result; an empty list if it only used some"
    )
    effects: EffectsForm | None = Field(default=None, description="What a task of a DAG leaves behind")


class Failed(Sent):
    """The attempt failed."""

    lease: LeaseForm
    error: Words
    fingerprint: Annotated[str, StringConstraints(max_length=1_000), AfterValidator(storable)] = ""
    permanent: bool = False
    delay_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        default=None, description="Before it is tried again [by the policy of the task]"
    )
    seconds: Ran | None = None
    charged: bool = True
    outcome: Literal["FAILED", "LOST", "CANCELLED", "TIMED_OUT", "RELEASED"] = "FAILED"

    @model_validator(mode="after")
    def _released_is_uncharged(self) -> Self:
        if self.outcome == "RELEASED" and self.charged:
            raise ValueError("an attempt that is released is not charged: set charged to false")
        return self


class Ask(Sent):
    """Who claims, and what."""

    worker_id: Id
    limit: Annotated[int, Field(ge=0, le=MANY)] = 1
    queues: Queues = Field(default_factory=list, description="None named: all")
    lease_seconds: Lasting = 90.0


class ClaimAsk(Ask):
    wait_seconds: Wait = Field(default=0.0, description="How long to wait for work if there is none")


class Exchange(Ask):
    """Outcomes, and a claim."""

    completed: Annotated[list[Completed], Field(max_length=MANY)] = Field(default_factory=list)
    failed: Annotated[list[Failed], Field(max_length=MANY)] = Field(default_factory=list)
    released: Annotated[list[LeaseForm], Field(max_length=MANY)] = Field(default_factory=list)


class LeaseOut(BaseModel):
    task_id: Id
    attempt: int
    token: UUID
    linked: bool


class ClickHouse(BaseModel):
    """Where the Objects of the organisation are, and as whom."""

    host: str
    port: int
    user: str
    database: str
    password: str
    secure: bool
    path: str
    cluster: str = Field(description="The cluster that Objects are spread over, if any")
    others: list[ClickHouse] = Field(description="Its other nodes")


class Claimed(BaseModel):
    """A task to run."""

    lease: LeaseOut
    org_id: UUID
    job_id: Id | None
    group_id: Id | None
    type: str
    entrypoint: str | None
    kwargs: Any
    timeout_seconds: float | None
    failures: int
    retry_policy: Any
    suspect: bool = Field(description="A process died with it: run it alone")
    shared: bool = Field(description="The installation has several organisations: run only code that the worker names")
    queue: str
    lease_seconds: float | None = Field(
        description="How long the lease lasts after each heartbeat, if the task sets it; else as long as you asked for"
    )
    priority: int


class Claims(BaseModel):
    tasks: list[Claimed]
    clickhouse: ClickHouse | None = Field(description="If something was claimed and may have it")
    no_clickhouse: str | None = Field(description="Why not")
    clickhouse_unreachable: bool = Field(description="An outage: release what needs data, uncharged")


class Exchanged(Claims):
    accepted: list[Id] = Field(description="Tasks whose lease held; of the others nothing was changed")


class Fetched(BaseModel):
    """A task to run, its arguments complete: results of other tasks are in their places. An event of a Lambda function
    is the same, without a credential.
    """

    task: Claimed
    worker_id: Id = Field(description="The worker that holds the lease")
    lease_seconds: float = Field(description="How long a heartbeat renews the lease")
    clickhouse: ClickHouse | None
    no_clickhouse: str | None
    clickhouse_unreachable: bool


class OneLease(Sent):
    lease: LeaseForm


class DefinitionAsk(OneLease):
    definition: UUID


class StateAsk(DefinitionAsk):
    key: Words


class SecretsAsk(OneLease):
    names: Annotated[list[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]], Field(max_length=100)]


class SecretValue(BaseModel):
    name: str
    value: str
    host: str | None = Field(description="The only host that it may be sent to")


class SecretsOut(BaseModel):
    secrets: list[SecretValue]


class GenerationAsk(OneLease):
    generation: UUID


class PartitionsAsk(GenerationAsk):
    keys: Annotated[list[Words], Field(max_length=MANY)] | None = Field(default=None, description="None named: all")


class Publication(GenerationAsk):
    """Rows that an attempt has staged in a table of its own, to be put in place."""

    partition: Words = ""
    ticket: Id
    table: TableName
    rows: Annotated[int, Field(ge=0, le=2**63 - 1)]


class Emission(OneLease):
    """Updates that a source has published while it runs, to be routed at once."""

    cursor: Annotated[Words, StringConstraints(min_length=1, max_length=MAX_CURSOR_CHARACTERS)] = Field(
        description="Identifies the update: emitted again, it starts nothing twice"
    )
    effects: EffectsForm


class DefinitionOut(BaseModel):
    """What a task of a DAG is to do: its definition, and the generations that it reads and makes."""

    definition: dict[str, Any]
    datasets: list[dict[str, Any]]


class TicketOut(BaseModel):
    ticket: Id


class StateOut(BaseModel):
    state: dict[str, Any] | None


class PartitionsOut(BaseModel):
    partitions: list[dict[str, Any]]


class DigestOut(BaseModel):
    digest: str


class Published(BaseModel):
    published: bool = Field(description="False: newer rows are there")


class Leases(Sent):
    leases: Annotated[list[LeaseForm], Field(max_length=MANY)]


class Heartbeat(Leases):
    worker_id: Id
    lease_seconds: Lasting = 90.0


class HeartbeatOut(BaseModel):
    lost: list[Id]
    cancelled: list[Id]


class Holds(BaseModel):
    """Of which tasks the lease held."""

    ids: list[Id]


class LogPart(Sent):
    """A part of what an attempt said; sent twice, it is there once."""

    lease: LeaseForm
    offset: Annotated[int, Field(ge=0, le=10**9, description="In bytes, from the beginning of this attempt")]
    text: Annotated[str, StringConstraints(max_length=2_000_000)]


class NewTaskForm(Sent):
    id: Id
    type: Name
    entrypoint: Entrypoint | None
    kwargs: Arguments
    group_id: Id | None
    queue: Name
    priority: Annotated[int, Field(ge=-32768, le=32767)]
    max_attempts: Annotated[int, Field(ge=1, le=1000)]
    timeout_seconds: Seconds | None
    retry_policy: RetryPolicy | None
    run_at: AwareDatetime | None
    idempotency_key: Key | None
    concurrency_key: Key | None
    concurrency_limit: Annotated[int, Field(ge=1, le=100_000)] | None
    critical: bool = True


class NewGroupForm(Sent):
    id: Id
    name: Name
    parent_group_id: Id | None


class Addition(Sent):
    """Tasks and groups that a task adds to its own job; they begin when it has completed."""

    lease: LeaseForm
    tasks: Annotated[list[NewTaskForm], Field(max_length=MANY)] = Field(default_factory=list)
    groups: Annotated[list[NewGroupForm], Field(max_length=MANY)] = Field(default_factory=list)
    edges: Annotated[list[tuple[Id, Id]], Field(max_length=10 * MANY)] = Field(default_factory=list)
    names: dict[Id, Name] = Field(default_factory=dict)


class ResultsAsk(Sent):
    """Whose results: of some tasks of the same job, or of all of a group of it."""

    lease: LeaseForm
    task_ids: Annotated[list[Id], Field(max_length=MANY)] = Field(default_factory=list)
    group_id: Id | None = None


class Result(BaseModel):
    task_id: Id
    result: Any
    attempt: int | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


class Results(BaseModel):
    results: list[Result]


class Wish(Sent):
    table: TableName
    lease: LeaseForm


class Wishes(Sent):
    """What attempts want to do with tables: make one known before it exists, read one, have no more use for one."""

    deed: Literal["reserve", "hold", "release"]
    tables: Annotated[list[Wish], Field(max_length=MANY)]


class HeldOut(BaseModel):
    lease_lost: bool
    gone: bool


class WishesOut(BaseModel):
    tables: list[HeldOut] = Field(description="In the order of the request; nothing for a release")


class Naming(Sent):
    """Keep a table by a name, or (without one) no more."""

    lease: LeaseForm
    table: TableName
    name: Name | None = None


class Waiting(Sent):
    since: Annotated[str, StringConstraints(max_length=50)] = Field(default="", description="`now` of the last answer")
    wait_seconds: Wait = 25.0


class HeardOut(BaseModel):
    now: str
    ready: bool = Field(description="There may be work")
    cancel: bool = Field(description="Something is to be cancelled: a heartbeat says what")


class Registration(Sent):
    worker_id: Id | None = None
    hostname: Name
    pid: Number = 0
    pool_size: Annotated[int, Field(ge=1, le=100_000)] = 1
    version: Name | None = None
    queues: Queues = Field(default_factory=list)


class Registered(BaseModel):
    worker_id: Id


class OneWorker(Sent):
    worker_id: Id


class QueueCounts(Sent):
    queue: Words
    completed: Number = 0
    failed: Number = 0


class Counts(OneWorker):
    queues: Annotated[list[QueueCounts], Field(max_length=1_000)] = Field(default_factory=list[QueueCounts])


class House(OneWorker):
    term_seconds: Annotated[float, Field(gt=0, le=TERM_SECONDS)] = TERM_SECONDS
    """How long this one leads if it does not ask again."""


class HeldTask(BaseModel):
    lease: LeaseOut
    cancelled: bool
    age_seconds: float


class HeldTasks(BaseModel):
    tasks: list[HeldTask]


class Keeping(Sent):
    worker_ids: Annotated[list[Id], Field(max_length=1_000)]
    lease_seconds: Lasting = 90.0


class Workers(Sent):
    worker_ids: Annotated[list[Id], Field(max_length=1_000)]


class OverdueAsk(Workers):
    grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 5.0
    default_timeout_seconds: Seconds = 3600.0


class OverdueForm(Sent):
    lease: LeaseForm
    worker_id: Id
    cancelled: bool
    timeout_seconds: Seconds
    failures: Number
    retry_policy: RetryPolicy | None = None


class OverdueTasks(BaseModel):
    tasks: list[OverdueForm]


class Settlement(OneWorker):
    """A process has ended: `culprits` pay; if it `crashed`, everything else it held is suspect, else given back."""

    culprits: Annotated[list[OverdueForm], Field(max_length=MANY)] = Field(default_factory=list)
    crashed: Annotated[str, StringConstraints(max_length=200), AfterValidator(storable)] | None = None
