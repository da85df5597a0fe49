"""The operators that come with aaiclick, and how their settings look."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from aaiclick.catalog.operators.registry import Activation, Config, OperatorDefinition, Registry

BIGGEST = (1 << 63) - 1

ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Callable = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"),
    Field(description="Where the function is: package.module:function."),
]
Position = Annotated[int, Field(ge=-BIGGEST, le=BIGGEST)]
Size = Annotated[int, Field(ge=1, le=BIGGEST)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class SecretReference(Config):
    """The value of a secret of this job, filled in where the task runs."""

    secret: str


class SqlConfig(Config):
    """One SELECT over the inputs, by their names; its rows are the output."""

    query: Annotated[str, StringConstraints(min_length=1, max_length=100_000)]


class PythonConfig(Config):
    """A function that gets the inputs as Objects and returns the output."""

    function: Callable
    arguments: dict[str, Any] = {}
    version: Annotated[
        str | int | None, Field(description="Change it when the code has changed: outputs are rebuilt.")
    ] = None


class RangeAggregatorConfig(Config):
    """Collects positions or ranges as they arrive and passes on whole ranges of one size, in order, each once."""

    size: Size
    start: Annotated[Position, Field(description="The first position; ranges are counted from here.")] = 0
    flush_partial: Annotated[bool, Field(description="At the end of a run, pass on what is left too.")] = False


class RangeSplitterConfig(Config):
    """Splits each range that arrives into ranges of at most this size, cut at multiples of it."""

    size: Size
    start: Position = 0


class FollowerConfig(Config):
    """Follows a source that grows: asks where its end is, fetches what is new, in order, and remembers where it was.

    `tip` returns the last position (and optionally a mark, which tells whether history was rewritten); `fetch` gets
    `start` and `end`, both included, and returns rows.
    """

    tip: Callable
    fetch: Callable
    start: Position = 0
    confirmations: Annotated[int, Field(ge=0, le=1_000_000, description="How far to stay behind the end.")] = 0
    batch_size: Size = 1000
    poll_seconds: Seconds = 10.0
    checkpoints: Annotated[int, Field(ge=0, le=10_000, description="How many marks are kept, to notice and undo.")] = 64


class Condition(Config):
    """When an alert is raised, and when it is over: a value between the two thresholds changes nothing."""

    comparison: Literal[">", ">=", "<", "<="]
    threshold: float | int
    clear_threshold: float | int | None = None
    for_evaluations: Annotated[int, Field(ge=1, le=10_000, description="How many in a row raise it.")] = 1
    clear_evaluations: Annotated[int, Field(ge=1, le=10_000, description="How many in a row end it.")] = 1

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


class AlertConfig(Config):
    """Watches one number, per key if there is one, and says when it goes beyond a limit and when it is back."""

    value: ColumnName
    key: list[ColumnName] = []
    condition: Condition
    severity: Literal["info", "warning", "critical"] = "warning"
    missing: Annotated[Literal["keep", "raise", "clear"], Field(description="What an absent value means.")] = "keep"
    message: Annotated[str | None, StringConstraints(max_length=2000)] = None


def _is_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
        secret = bool(parts.username or parts.password)
        _ = parts.port
    except ValueError:
        good, secret = False, False
    if not good:
        raise PydanticCustomError("web_address", "this is not an http or https address")
    if secret:
        raise PydanticCustomError("web_address", "the address carries a password; use headers with a secret")
    return url


FRAMING_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"}
)


def _is_free_header(name: str) -> str:
    """Framing is the client's work, and another Host would be another server behind the same address."""
    if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or name.lower() in FRAMING_HEADERS:
        raise PydanticCustomError("header", "the header {name} cannot be set", {"name": name[:60]})
    return name


class HttpFetchConfig(Config):
    """Fetches a document from the web; its records are the output."""

    url: Annotated[str, StringConstraints(max_length=4000), AfterValidator(_is_web_address)]
    method: Literal["GET", "POST"] = "GET"
    headers: dict[Annotated[str, AfterValidator(_is_free_header)], str | SecretReference] = {}
    parameters: dict[str, str | int | float | bool | SecretReference] = {}
    body: Any = None
    format: Literal["json", "jsonl", "csv", "parquet"] = "json"
    records: Annotated[str | None, Field(description="Where the list of records is, for example data.items.")] = None
    timeout_seconds: Seconds = 60.0
    max_bytes: Annotated[int, Field(ge=1, le=1 << 30)] = 1 << 28

    @model_validator(mode="after")
    def _body_is_posted(self) -> HttpFetchConfig:
        if self.body is not None and self.method != "POST":
            raise PydanticCustomError("body", "a body needs method: POST")
        return self


class ParquetFilesConfig(Config):
    """Attaches Parquet files that another program writes: those that the output's storage names."""


SOURCE: frozenset[Activation] = frozenset({"source"})
REACTIVE: frozenset[Activation] = frozenset({"reactive"})

BUILT_IN = [
    OperatorDefinition("sql", "one SELECT over the inputs", SqlConfig, min_outputs=1, max_outputs=1),
    OperatorDefinition("python", "a Python function", PythonConfig),
    OperatorDefinition(
        "range_aggregator", "positions into whole ranges", RangeAggregatorConfig, REACTIVE, min_outputs=1, max_outputs=1
    ),
    OperatorDefinition(
        "range_splitter", "ranges into smaller ones", RangeSplitterConfig, REACTIVE, min_outputs=1, max_outputs=1
    ),
    OperatorDefinition("follower", "follows a source that grows", FollowerConfig, SOURCE, min_outputs=1),
    OperatorDefinition(
        "block_follower",
        "follows a chain of blocks: a follower that stays behind and notices rewritten history",
        FollowerConfig,
        SOURCE,
        min_outputs=1,
        preset={"confirmations": 12, "batch_size": 100, "checkpoints": 256},
    ),
    OperatorDefinition("parquet_files", "Parquet files of another writer", ParquetFilesConfig, min_outputs=1),
    OperatorDefinition("alert_evaluate", "raises and ends alerts", AlertConfig, REACTIVE, max_outputs=1),
    OperatorDefinition("http_fetch", "fetches from the web", HttpFetchConfig, min_outputs=1, max_outputs=1),
]


def default_registry() -> Registry:
    return Registry(BUILT_IN)
