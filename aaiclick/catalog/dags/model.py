"""The shape of a DAG file, as types. What concerns several fields or jobs at once is in `rules`.

The field descriptions become the JSON Schema that editors use (`aaiclick/catalog/dags/dag.schema.json`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from aaiclick.errors import ScheduleError
from aaiclick.orchestration.schedule import MissedPolicy, parse_expression, parse_zone

NAME = r"^[a-z][a-z0-9_-]{0,62}$"
DATASET_NAME = r"^[a-z][a-z0-9_]{0,62}$"
RUNTIME = r"^(pool|dispatcher|lambda|ecs_[a-z0-9_]{1,40})$"
IDLE_TIMEOUT = r"^(never|0|[1-9][0-9]{0,8}[smhd])$"
NAME_OF_A_GRANT = r"^(?:[a-z][a-z0-9_-]{0,62})$"
BIGGEST_INT = (1 << 31) - 1

Name = Annotated[str, StringConstraints(pattern=NAME)]
DatasetName = Annotated[str, StringConstraints(pattern=DATASET_NAME)]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Words = Annotated[str, StringConstraints(max_length=4000)]
Runtime = Annotated[
    str,
    StringConstraints(pattern=RUNTIME),
    Field(description="Where its tasks run: pool (workers), dispatcher (in process), lambda, or ecs_NAME."),
]
Seconds = Annotated[int, Field(ge=1, le=BIGGEST_INT)]
LeaseSeconds = Annotated[
    int,
    Field(ge=5, le=BIGGEST_INT, description="The lease of its tasks: without a heartbeat for so long, one is lost."),
]
Attempts = Annotated[int, Field(ge=1, le=1000)]
UpdateStrategy = Annotated[
    Literal["append", "replace"],
    Field(
        description="append: rows are added, a row with the same unique_key replaces the old one; replace: all rows."
    ),
]
ExecutionStrategy = Annotated[
    Literal["PerUpdate", "PerPartition"], Field(description="One task per update of an input, or per partition of it.")
]


def _zero_as_text(value: Any) -> Any:
    return "0" if type(value) is int and value == 0 else value


SecretName = Annotated[str, StringConstraints(pattern=NAME_OF_A_GRANT)]


def names_of_secrets(value: Any) -> Any:
    """A list of names as a mapping of each to itself; anything else as it is."""
    names = cast("list[Any]", value) if isinstance(value, list) else [None]
    return {name: name for name in names} if all(isinstance(name, str) for name in names) else cast("Any", value)


SecretNames = Annotated[
    dict[SecretName, SecretName],
    BeforeValidator(names_of_secrets, json_schema_input_type=dict[SecretName, SecretName] | list[SecretName]),
    Field(description="Secrets of the organisation that it uses: [NAME], or {NAME_HERE: NAME}. Never a value."),
]
IdleTimeout = Annotated[
    str,
    BeforeValidator(_zero_as_text),
    StringConstraints(pattern=IDLE_TIMEOUT),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": IDLE_TIMEOUT}, {"const": 0}]}),
]


def _schedule(text: str) -> str:
    try:
        parse_expression(text)
    except ScheduleError as error:
        raise PydanticCustomError("schedule", "{what}", {"what": error.what, "remedy": error.remedy}) from None
    return text


def _zone(name: str) -> str:
    try:
        parse_zone(name)
    except ScheduleError as error:
        raise PydanticCustomError("zone", "{what}", {"what": error.what, "remedy": error.remedy}) from None
    return name


class Part(BaseModel):
    """Base of everything in a file: nothing unknown, nothing converted silently, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CronSource(Part):
    """Starts at the times of a cron expression."""

    kind: Literal["cron"]
    schedule: Annotated[str, AfterValidator(_schedule), Field(description="Five fields of cron, or @hourly, @daily …")]
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    missed: Annotated[
        MissedPolicy, Field(description="After an outage: skip what was missed, run one, or run all of it.")
    ] = "one"
    max_missed: Annotated[int, Field(ge=1, le=10_000, description="With missed: all, how many at most.")] = 100
    overlap: Annotated[bool, Field(description="Start although the run before has not ended.")] = False


class WebhookSource(Part):
    """Starts when a signed request arrives."""

    kind: Literal["webhook"]
    secret: Annotated[str, Field(description="Which of the job's secrets signs the requests.")]


class ManualSource(Part):
    """Starts when somebody says so."""

    kind: Literal["manual"]


class AlwaysOnSource(Part):
    """Runs all the time; started again when its heartbeat stops."""

    kind: Literal["always_on"]


Source = Annotated[CronSource | WebhookSource | ManualSource | AlwaysOnSource, Field(discriminator="kind")]


class Bootstrap(Part):
    reset_outputs: Annotated[bool, Field(description="Empty the outputs before the first run of a version.")] = False


class Scaling(Part):
    max_concurrency: Annotated[int, Field(ge=1, le=100_000, description="How many tasks at the same time.")]


class Storage(Part):
    kind: Literal["clickhouse", "parquet"] = "clickhouse"
    prefix: Annotated[
        str | None, Field(description="With parquet: the directory or s3:// prefix under which versions are kept.")
    ] = None
    glob: Annotated[
        str | None,
        Field(
            description="With parquet: the files below the prefix that match this are the dataset. Another program, or "
            "the job itself, writes them."
        ),
    ] = None


class Output(Part):
    """A dataset that a job makes."""

    name: DatasetName
    description: Words | None = None
    partition_by: Annotated[ColumnName | None, Field(description="The column whose values are the partitions.")] = None
    storage: Storage = Storage()
    range: Annotated[
        list[int] | None,
        Field(min_length=2, max_length=2, description="First and last position that this version of it holds."),
    ] = None
    columns: Annotated[
        dict[ColumnName, str], Field(description="Columns and their ClickHouse types, if they are promised.")
    ] = {}
    lineage: Annotated[
        dict[ColumnName, list[str]],
        Field(description="Where columns come from, as input.column; for SQL it is derived."),
    ] = {}


class Input(Part):
    """A dataset that a job reads: an output of this DAG, or a dataset that another one publishes."""

    output: DatasetName | None = None
    dataset: DatasetName | None = None


class Publication(Part):
    """An output that others may find and read under a name."""

    output: DatasetName
    name: DatasetName | None = None
    description: Words | None = None


def _short(key: str, model: type[Part]) -> BeforeValidator:
    """A name alone stands for {key: name}."""

    def expand(value: Any) -> Any:
        return {key: value} if isinstance(value, str) else value

    return BeforeValidator(expand, json_schema_input_type=DatasetName | model)


class Defaults(Part):
    """What holds for every job that does not say otherwise."""

    runtime: Runtime = "pool"
    execution_strategy: ExecutionStrategy | None = None
    update_strategy: UpdateStrategy = "replace"
    idle_timeout: IdleTimeout | None = None
    scaling: Scaling | None = None
    timeout_seconds: Seconds | None = None
    heartbeat_timeout_seconds: LeaseSeconds | None = None
    max_attempts: Attempts = 3
    memoize: bool = True
    secrets: SecretNames = {}


class JobSpec(Part):
    """A job definition: a node of the DAG."""

    name: Name
    description: Words | None = None
    activation: Annotated[
        Literal["source", "reactive"], Field(description="source: starts by itself; reactive: when an input changes.")
    ]
    operator: Annotated[str, StringConstraints(min_length=1, max_length=100), Field(description="What it does.")]
    config: Annotated[dict[str, Any], Field(description="The operator's settings.")] = {}
    source: Source | None = None
    bootstrap: Bootstrap | None = None
    inputs: list[Annotated[Input, _short("output", Input)]] = []
    outputs: list[Annotated[Output, _short("name", Output)]] = []
    execution_strategy: ExecutionStrategy | None = None
    update_strategy: UpdateStrategy = "replace"
    unique_key: Annotated[list[ColumnName], Field(description="With append: the columns that identify a row.")] = []
    runtime: Runtime = "pool"
    idle_timeout: Annotated[
        IdleTimeout | None, Field(description="How long it stays up without events: never, 0, 30s, 5m, 2h, 1d.")
    ] = None
    scaling: Scaling | None = None
    timeout_seconds: Seconds | None = None
    heartbeat_timeout_seconds: LeaseSeconds | None = None
    max_attempts: Attempts = 3
    memoize: Annotated[bool, Field(description="Reuse what was made from the same inputs and settings.")] = True
    secrets: SecretNames = {}


class Dag(Part):
    """A DAG: jobs that make datasets from each other, and what of it is published."""

    name: Name
    description: Words | None = None
    defaults: Defaults = Defaults()
    jobs: Annotated[list[JobSpec], Field(min_length=1, max_length=2000)]
    publish: list[Annotated[Publication, _short("output", Publication)]] = []

    def job(self, name: str) -> JobSpec:
        return next(each for each in self.jobs if each.name == name)
