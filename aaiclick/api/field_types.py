"""Field types and base classes that several schemas share."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

T = TypeVar("T")

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


Name = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(check_storable)]
Slug = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(check_storable)]
Entrypoint = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[A-Za-z_][\w.:]*$")]
Id = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,18}$"), Field(examples=["7265312768204800"])]
Arguments = dict[str, Any]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400)]
JobState = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
TaskState = Literal["PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"]


class RequestModel(BaseModel):
    """Base of request bodies: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class RetryPolicy(RequestModel):
    """Back-off between attempts."""

    base_seconds: Annotated[float, Field(ge=0, le=86_400)] = 1.0
    cap_seconds: Annotated[float, Field(ge=0, le=86_400)] = 3600.0


class Page(BaseModel, Generic[T]):
    """One page of items, and the cursor of the next."""

    items: list[T]
    next: str | None = Field(default=None, description="The `cursor` of the next page; null on the last one")


class CreatedResponse(BaseModel):
    """The id of the created item."""

    id: Id


class CreatedIdsResponse(BaseModel):
    """The ids of the created items, in the order of the request."""

    ids: list[Id]


class ChangedIdsResponse(BaseModel):
    """The number of changed items, and the ids of the first thousand."""

    count: int
    ids: list[Id]
