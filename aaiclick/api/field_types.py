"""Field types and base classes that several schemas share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)

from aaiclick.errors import RequestError
from aaiclick.store.engine.leases_and_outcomes import WAIT_ARGUMENT
from aaiclick.store.enums import NOTIFICATION_QUEUE, TURN_TYPE

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

MAX_ID = 2**63 - 1
MAX_ITEMS = 10_000


def check_storable(text: str) -> str:
    """Refuse text that PostgreSQL cannot store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    if "\x00" in text:
        raise ValueError("a NUL character")
    return text


def check_queue(name: str) -> str:
    """Refuse the queue of deliveries, which are not run by workers."""
    if name == NOTIFICATION_QUEUE:
        raise ValueError("the queue of notifications takes no other tasks")
    return name


def check_task_type(name: str) -> str:
    """Refuse the type of the tasks in which limited jobs wait: their arguments name jobs."""
    if name == TURN_TYPE:
        raise ValueError(f"the type {TURN_TYPE!r} is reserved: rename it")
    return name


def check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Refuse the argument with the state of a wait."""
    if WAIT_ARGUMENT in arguments:
        raise ValueError(f"the argument {WAIT_ARGUMENT!r} is reserved: rename it")
    return arguments


def _parse_snowflake(value: object) -> object:
    if isinstance(value, str):
        if not _SNOWFLAKE.fullmatch(value):
            raise ValueError("not an id: ids are positive numbers of up to 19 digits")
        return int(value)
    return value


_SNOWFLAKE = re.compile(r"[1-9][0-9]{0,18}")
Snowflake = Annotated[
    int,
    Strict(),
    BeforeValidator(_parse_snowflake),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^{_SNOWFLAKE.pattern}$", "examples": ["7265312768204800"]}),
]
"""An id: a number in Python, a string in JSON, since JavaScript loses the last digits of large numbers."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(check_storable)]
QueueName = Annotated[Name, AfterValidator(check_queue)]
TaskTypeName = Annotated[Name, AfterValidator(check_task_type)]
Slug = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(check_storable)]
Entrypoint = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[A-Za-z_][\w.:]*$")]
Id = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,18}$"), Field(examples=["7265312768204800"])]
Arguments = Annotated[dict[str, Any], AfterValidator(check_arguments)]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400)]
JobState = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
TaskState = Literal["PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED", "SKIPPED"]


class ApiModel(BaseModel):
    """Base of responses: validators are built at the first use, since most commands use few of them."""

    model_config = ConfigDict(defer_build=True)


class RequestModel(ApiModel):
    """Base of request bodies: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=False)


def parse_fields(schema: type[Model], fields: Mapping[str, object]) -> Model:
    """Validate fields of a form or a command; raises RequestError with the first error, without the value."""
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        text = f"{name}: {message}" if name else message[:1].upper() + message[1:]
        raise RequestError(f"{text}.", remedy="Correct it and try again.") from None


class RowModel(ApiModel):
    """Base of models that are made from rows of the store: `Model.model_validate(row)`."""

    model_config = ConfigDict(from_attributes=True)


class RetryPolicy(RequestModel):
    """Back-off between attempts."""

    base_seconds: Annotated[float, Field(ge=0, le=86_400)] = 1.0
    cap_seconds: Annotated[float, Field(ge=0, le=86_400)] = 3600.0


class Page(BaseModel, Generic[T]):
    """One page of items, and the cursor of the next."""

    items: list[T]
    next: str | None = Field(default=None, description="The `cursor` of the next page; null on the last one")


class CreatedResponse(ApiModel):
    """The id of the created item."""

    id: Snowflake


class CreatedIdsResponse(ApiModel):
    """The ids of the created items, in the order of the request."""

    ids: list[Snowflake]


class ChangedIdsResponse(ApiModel):
    """The number of changed items, and the ids of the first thousand."""

    count: int
    ids: list[Snowflake]
