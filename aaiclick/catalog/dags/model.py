"""Types of a DAG file. Rules that concern several fields or definitions are in `validation`.

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

from aaiclick.catalog.dags.data_tests import DataTestSpec
from aaiclick.catalog.dags.freshness import Freshness
from aaiclick.catalog.dags.time_zones import check_zone
from aaiclick.cron import MissedPolicy, OverlapPolicy, parse_expression
from aaiclick.errors import ScheduleError

NAME = r"^[a-z][a-z0-9_-]{0,62}$"
DATASET_NAME = r"^[a-z][a-z0-9_]{0,62}$"
RUNTIME = r"^(pool|dispatcher|lambda|ecs_[a-z0-9_]{1,40})$"
IDLE_TIMEOUT = r"^(never|0|[1-9][0-9]{0,8}[smhd])$"
REJECTED_SUFFIX = "__rejected"
"""Added to the name of an output: the dataset of its quarantined rows."""
GRANTED_NAME = r"^(?:[a-z][a-z0-9_-]{0,62})$"
MAX_INT32 = (1 << 31) - 1

Name = Annotated[str, StringConstraints(pattern=NAME)]
DatasetName = Annotated[str, StringConstraints(pattern=DATASET_NAME)]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Description = Annotated[str, StringConstraints(max_length=4000)]
Runtime = Annotated[
    str,
    StringConstraints(pattern=RUNTIME),
    Field(description="Runtime of its tasks: pool (workers), dispatcher (in process), lambda, or ecs_NAME."),
]
Seconds = Annotated[int, Field(ge=1, le=MAX_INT32)]
LeaseSeconds = Annotated[
    int,
    Field(ge=5, le=MAX_INT32, description="Lease of its tasks: a task without a heartbeat for this long is lost."),
]
Attempts = Annotated[int, Field(ge=1, le=1000)]
UpdateStrategy = Annotated[
    Literal["append", "replace"],
    Field(
        description="append: rows are added, a row with the same unique_key replaces the old one; replace: all rows."
    ),
]
ExecutionStrategy = Annotated[
    Literal["PerUpdate", "PerPartition", "Coalesce"],
    Field(description="One task per update of an input, per partition of it, or for all updates that wait (Coalesce)."),
]


def _zero_as_text(value: object) -> Any:
    return "0" if type(value) is int and value == 0 else value


SecretName = Annotated[str, StringConstraints(pattern=GRANTED_NAME)]


def normalize_secret_names(value: object) -> Any:
    """Convert a list of names to a mapping of each name to itself; return anything else unchanged."""
    names = cast("list[Any]", value) if isinstance(value, list) else [None]
    return {name: name for name in names} if all(isinstance(name, str) for name in names) else cast("Any", value)


SecretNames = Annotated[
    dict[SecretName, SecretName],
    BeforeValidator(normalize_secret_names, json_schema_input_type=dict[SecretName, SecretName] | list[SecretName]),
    Field(description="Secrets of the organisation that it uses: [NAME], or {NAME_HERE: NAME}. Never a value."),
]
IdleTimeout = Annotated[
    str,
    BeforeValidator(_zero_as_text),
    StringConstraints(pattern=IDLE_TIMEOUT),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": IDLE_TIMEOUT}, {"const": 0}]}),
]


def _check_schedule(text: str) -> str:
    try:
        parse_expression(text)
    except ScheduleError as error:
        raise PydanticCustomError("schedule", "{what}", {"what": error.what, "remedy": error.remedy}) from None
    return text


class DagModel(BaseModel):
    """Base of all models of a DAG file: strict, immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CronSource(DagModel):
    """Starts at the times of a cron expression."""

    kind: Literal["cron"]
    schedule: Annotated[
        str, AfterValidator(_check_schedule), Field(description="Five fields of cron, or @hourly, @daily …")
    ]
    timezone: Annotated[str, AfterValidator(check_zone)] = "UTC"
    missed: Annotated[
        MissedPolicy, Field(description="After an outage: skip missed runs, run the latest, or run all.")
    ] = "latest"
    max_missed: Annotated[int, Field(ge=1, le=10_000, description="With missed: all, most runs to catch up.")] = 100
    overlap: Annotated[
        OverlapPolicy, Field(description="While a run has not finished: start others too, queue, skip or cancel it.")
    ] = "queue"


class WebhookSource(DagModel):
    """Starts when a signed request arrives."""

    kind: Literal["webhook"]
    secret: Annotated[str, Field(description="The secret of the definition that signs the requests.")]


class ManualSource(DagModel):
    """Starts on request."""

    kind: Literal["manual"]


class AlwaysOnSource(DagModel):
    """Runs continuously; restarted when its heartbeat stops."""

    kind: Literal["always_on"]


Source = Annotated[CronSource | WebhookSource | ManualSource | AlwaysOnSource, Field(discriminator="kind")]


class Bootstrap(DagModel):
    reset_outputs: Annotated[bool, Field(description="Every version begins with empty outputs.")] = False


class Scaling(DagModel):
    max_concurrency: Annotated[int, Field(ge=1, le=100_000, description="Most tasks that run at the same time.")]


class Storage(DagModel):
    kind: Literal["clickhouse", "parquet"] = "clickhouse"
    prefix: Annotated[
        str | None, Field(description="With parquet: the directory or s3:// prefix under which versions are kept.")
    ] = None
    glob: Annotated[
        str | None,
        Field(
            description="With parquet: the files below the prefix that match this are the dataset. They are written "
            "by another program or by the definition's function."
        ),
    ] = None


class Output(DagModel):
    """A dataset that a definition produces."""

    name: DatasetName
    description: Description | None = None
    partition_by: Annotated[ColumnName | None, Field(description="The column with the partitions as values.")] = None
    storage: Storage = Storage()
    range: Annotated[
        list[int] | None,
        Field(min_length=2, max_length=2, description="First and last position of this version."),
    ] = None
    columns: Annotated[dict[ColumnName, str], Field(description="Declared columns and their ClickHouse types.")] = {}
    lineage: Annotated[
        dict[ColumnName, list[str]],
        Field(description="Source columns as input.column; derived automatically for SQL."),
    ] = {}
    tests: Annotated[
        list[DataTestSpec],
        Field(max_length=100, description="Tests of the rows of an update before they are published."),
    ] = []

    freshness: Annotated[Freshness | None, Field(description="When the dataset has to be updated.")] = None

    @property
    def has_quarantine(self) -> bool:
        return any(test.effective_on_failure == "quarantine" for test in self.tests)


class Input(DagModel):
    """A dataset that a definition reads: an output of this DAG, or a dataset that another DAG publishes."""

    output: DatasetName | None = None
    dataset: DatasetName | None = None


class Publication(DagModel):
    """An output that is published under a name."""

    output: DatasetName
    name: DatasetName | None = None
    description: Description | None = None


def _accept_name(key: str, model: type[DagModel]) -> BeforeValidator:
    """Accept a plain name as short form of {key: name}."""

    def expand(value: object) -> Any:
        return {key: value} if isinstance(value, str) else value

    return BeforeValidator(expand, json_schema_input_type=DatasetName | model)


class Defaults(DagModel):
    """Default values for every definition."""

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


class DefinitionSpec(DagModel):
    """A job definition: a node of the DAG."""

    name: Name
    description: Description | None = None
    activation: Annotated[
        Literal["source", "reactive"], Field(description="source: starts by itself; reactive: when an input changes.")
    ]
    operator: Annotated[str, StringConstraints(min_length=1, max_length=100), Field(description="What it does.")]
    config: Annotated[dict[str, Any], Field(description="The operator's settings.")] = {}
    source: Source | None = None
    bootstrap: Bootstrap | None = None
    inputs: list[Annotated[Input, _accept_name("output", Input)]] = []
    outputs: list[Annotated[Output, _accept_name("name", Output)]] = []
    execution_strategy: ExecutionStrategy | None = None
    update_strategy: UpdateStrategy = "replace"
    unique_key: Annotated[list[ColumnName], Field(description="With append: the columns that identify a row.")] = []
    runtime: Runtime = "pool"
    idle_timeout: Annotated[
        IdleTimeout | None, Field(description="How long it stays active without events: never, 0, 30s, 5m, 2h, 1d.")
    ] = None
    scaling: Scaling | None = None
    timeout_seconds: Seconds | None = None
    heartbeat_timeout_seconds: LeaseSeconds | None = None
    max_attempts: Attempts = 3
    memoize: Annotated[
        bool, Field(description="Reuse outputs that were computed from the same inputs and settings.")
    ] = True
    secrets: SecretNames = {}


class Dag(DagModel):
    """A DAG: definitions that compute datasets from each other, and the datasets that it publishes."""

    name: Name
    description: Description | None = None
    defaults: Defaults = Defaults()
    jobs: Annotated[list[DefinitionSpec], Field(min_length=1, max_length=2000)]
    publish: list[Annotated[Publication, _accept_name("output", Publication)]] = []

    def job(self, name: str) -> DefinitionSpec:
        return next(definition for definition in self.jobs if definition.name == name)
