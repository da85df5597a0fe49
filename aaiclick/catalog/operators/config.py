"""Built-in operators and their settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from aaiclick.catalog.operators.registry import Activation, OperatorConfig, OperatorDefinition, OperatorRegistry

MAX_INT64 = (1 << 63) - 1

ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Callable = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"),
    Field(description="The function as package.module:function."),
]
Position = Annotated[int, Field(ge=-MAX_INT64, le=MAX_INT64)]
Size = Annotated[int, Field(ge=1, le=MAX_INT64)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class SecretReference(OperatorConfig):
    """The value of a secret of this definition, filled in when the task runs."""

    secret: str


class SqlConfig(OperatorConfig):
    """One SELECT over the inputs, by name; its rows are the output."""

    query: Annotated[str, StringConstraints(min_length=1, max_length=100_000)]


class PythonConfig(OperatorConfig):
    """A function that receives the inputs in the forms of its annotations and returns the output."""

    function: Callable
    arguments: Annotated[
        dict[str, Any], Field(description="Values of parameters; {input: NAME} is an input under another name.")
    ] = {}
    version: Annotated[
        str | int | None, Field(description="Change it after a change of the code: outputs are rebuilt.")
    ] = None


class RangeAggregatorConfig(OperatorConfig):
    """Collects positions or ranges and emits complete ranges of one size, in order, each once."""

    size: Size
    start: Annotated[Position, Field(description="The first position; ranges are counted from here.")] = 0
    flush_partial: Annotated[bool, Field(description="At the end of a run, emit the incomplete rest.")] = False


class RangeSplitterConfig(OperatorConfig):
    """Splits each incoming range into ranges of at most this size, aligned to multiples of it."""

    size: Size
    start: Position = 0


class FollowerConfig(OperatorConfig):
    """Follows a growing source: gets its tip, fetches new rows in order, and stores its position.

    `tip` returns the last position (and optionally a mark, which changes when history is rewritten); `fetch` gets
    `start` and `end`, both included, and returns rows.
    """

    tip: Callable
    fetch: Callable
    start: Position = 0
    confirmations: Annotated[int, Field(ge=0, le=1_000_000, description="Positions to stay behind the tip.")] = 0
    batch_size: Size = 1000
    poll_seconds: Seconds = 10.0
    checkpoints: Annotated[int, Field(ge=0, le=10_000, description="Stored marks, to detect rewritten history.")] = 64


class Condition(OperatorConfig):
    """When an alert is raised and cleared: a value between the two thresholds changes nothing."""

    comparison: Literal[">", ">=", "<", "<="]
    threshold: float | int
    clear_threshold: float | int | None = None
    for_evaluations: Annotated[int, Field(ge=1, le=10_000, description="Consecutive evaluations to raise it.")] = 1
    clear_evaluations: Annotated[int, Field(ge=1, le=10_000, description="Consecutive evaluations to clear it.")] = 1

    @model_validator(mode="after")
    def _thresholds_do_not_cross(self) -> Condition:
        clear = self.clear_threshold
        if clear is not None and (clear > self.threshold if self.comparison in (">", ">=") else clear < self.threshold):
            side = "at most" if self.comparison in (">", ">=") else "at least"
            raise PydanticCustomError(
                "thresholds",
                "clear_threshold must be {side} threshold ({threshold})",
                {"side": side, "threshold": self.threshold},
            )
        return self


class AlertConfig(OperatorConfig):
    """Watches one number, optionally per key, and reports when it crosses a limit and when it is back."""

    value: ColumnName
    key: list[ColumnName] = []
    condition: Condition
    severity: Literal["info", "warning", "critical"] = "warning"
    missing: Annotated[Literal["keep", "raise", "clear"], Field(description="Effect of a missing value.")] = "keep"
    message: Annotated[str | None, StringConstraints(max_length=2000)] = None


def _check_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_password = bool(parts.username or parts.password)
        _ = parts.port
    except ValueError:
        is_valid, has_password = False, False
    if not is_valid:
        raise PydanticCustomError("web_address", "this is not an http or https address")
    if has_password:
        raise PydanticCustomError("web_address", "the address carries a password; use headers with a secret")
    return url


FRAMING_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"}
)


def _check_header_name(name: str) -> str:
    """Reject headers that control framing, and Host, which would select another virtual server."""
    if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or name.lower() in FRAMING_HEADERS:
        raise PydanticCustomError("header", "the header {name} cannot be set", {"name": name[:60]})
    return name


class HttpFetchConfig(OperatorConfig):
    """Fetches a document over HTTP; its records are the output."""

    url: Annotated[str, StringConstraints(max_length=4000), AfterValidator(_check_web_address)]
    method: Literal["GET", "POST"] = "GET"
    headers: dict[Annotated[str, AfterValidator(_check_header_name)], str | SecretReference] = {}
    parameters: dict[str, str | int | float | bool | SecretReference] = {}
    body: Any = None
    format: Literal["json", "jsonl", "csv", "parquet"] = "json"
    records: Annotated[str | None, Field(description="Path of the list of records, for example data.items.")] = None
    timeout_seconds: Seconds = 60.0
    max_bytes: Annotated[int, Field(ge=1, le=1 << 30)] = 1 << 28

    @model_validator(mode="after")
    def _body_is_posted(self) -> HttpFetchConfig:
        if self.body is not None and self.method != "POST":
            raise PydanticCustomError("body", "a body needs method: POST")
        return self


def _check_database_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("postgresql", "postgres") and bool(parts.hostname) and bool(parts.username)
        _ = parts.port
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        is_valid, options = False, []
    if not is_valid:
        raise PydanticCustomError("database_address", "this is not an address postgresql://USER:PASSWORD@HOST/DATABASE")
    if any(name != "sslmode" or value not in SSL_MODES for name, value in options):
        raise PydanticCustomError("database_address", "the only option of the address is sslmode")
    return url


SSL_MODES = ("disable", "allow", "prefer", "require", "verify-full")
DatabaseAddress = Annotated[
    Annotated[str, StringConstraints(max_length=4000), AfterValidator(_check_database_address)] | SecretReference,
    Field(description="postgresql://USER:PASSWORD@HOST:PORT/DATABASE, from a secret: {secret: NAME}."),
]
TableName = Annotated[str, StringConstraints(pattern=r"^[^.\x00]+(\.[^.\x00]+)?$", max_length=128)]


class PostgresReadConfig(OperatorConfig):
    """Reads a table of another PostgreSQL, or its rows that changed since the last run."""

    url: DatabaseAddress
    table: Annotated[TableName | None, Field(description="NAME or SCHEMA.NAME.")] = None
    query: Annotated[str | None, StringConstraints(min_length=1, max_length=100_000)] = None
    columns: Annotated[list[ColumnName], Field(description="The columns to read; none: all.")] = []
    cursor: Annotated[
        ColumnName | None, Field(description="Column that grows with every change, such as updated_at.")
    ] = None
    lookback: Annotated[
        float, Field(ge=0, le=1e9, description="Seconds, or numbers, before the stored cursor to read again.")
    ] = 300

    @model_validator(mode="after")
    def _reads_one_relation(self) -> PostgresReadConfig:
        if (self.table is None) == (self.query is None):
            raise PydanticCustomError("relation", "give either table or query")
        if self.cursor is not None and self.columns and self.cursor not in self.columns:
            raise PydanticCustomError("cursor", "columns must contain the cursor")
        return self


class PostgresWriteConfig(OperatorConfig):
    """Writes the rows of an input to a table of another PostgreSQL, in one transaction."""

    url: DatabaseAddress
    table: Annotated[TableName, Field(description="NAME or SCHEMA.NAME.")]
    mode: Annotated[
        Literal["upsert", "replace"], Field(description="Insert or update by key, or replace all rows.")
    ] = "upsert"
    key: Annotated[list[ColumnName], Field(description="Columns of a unique index of the table.")] = []

    @model_validator(mode="after")
    def _upsert_has_a_key(self) -> PostgresWriteConfig:
        if (self.mode == "upsert") != bool(self.key):
            raise PydanticCustomError("key", "mode: upsert needs a key, and mode: replace has none")
        return self


class ParquetFilesConfig(OperatorConfig):
    """Attaches Parquet files of another program: those that the output's storage names."""


SOURCE_ONLY: frozenset[Activation] = frozenset({"source"})
REACTIVE_ONLY: frozenset[Activation] = frozenset({"reactive"})

BUILT_IN = [
    OperatorDefinition("sql", "one SELECT over the inputs", SqlConfig, min_outputs=1, max_outputs=1),
    OperatorDefinition("python", "a Python function", PythonConfig),
    OperatorDefinition(
        "range_aggregator",
        "aggregates positions into ranges",
        RangeAggregatorConfig,
        REACTIVE_ONLY,
        min_outputs=1,
        max_outputs=1,
    ),
    OperatorDefinition(
        "range_splitter", "splits ranges", RangeSplitterConfig, REACTIVE_ONLY, min_outputs=1, max_outputs=1
    ),
    OperatorDefinition("follower", "follows a growing source", FollowerConfig, SOURCE_ONLY, min_outputs=1),
    OperatorDefinition(
        "block_follower",
        "follows a blockchain: stays behind the tip and detects rewritten history",
        FollowerConfig,
        SOURCE_ONLY,
        min_outputs=1,
        preset={"confirmations": 12, "batch_size": 100, "checkpoints": 256},
    ),
    OperatorDefinition("parquet_files", "external Parquet files", ParquetFilesConfig, min_outputs=1),
    OperatorDefinition("alert_evaluate", "raises and clears alerts", AlertConfig, REACTIVE_ONLY, max_outputs=1),
    OperatorDefinition("http_fetch", "fetches over HTTP", HttpFetchConfig, min_outputs=1, max_outputs=1),
    OperatorDefinition(
        "postgres_read", "reads a table of PostgreSQL", PostgresReadConfig, SOURCE_ONLY, min_outputs=1, max_outputs=1
    ),
    OperatorDefinition(
        "postgres_write", "writes to a table of PostgreSQL", PostgresWriteConfig, REACTIVE_ONLY, max_outputs=0
    ),
]


def default_registry() -> OperatorRegistry:
    return OperatorRegistry(BUILT_IN)
