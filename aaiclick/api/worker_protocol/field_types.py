"""Field types and leases that several schemas of the worker protocol share."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from aaiclick.api.field_types import MAX_ITEMS, Id, Name, RequestModel, check_storable

Text = Annotated[str, StringConstraints(max_length=20_000), AfterValidator(check_storable)]
ShortText = Annotated[str, StringConstraints(max_length=1_000), AfterValidator(check_storable)]
TableName = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(check_storable)]
Queues = Annotated[list[Name], Field(max_length=1_000)]
LeaseSeconds = Annotated[float, Field(gt=0, le=30 * 86_400, description="Lifetime of a lease that is not renewed")]
WaitSeconds = Annotated[float, Field(ge=0, le=60)]
ElapsedSeconds = Annotated[float, Field(ge=0, le=100 * 365 * 86_400, description="Seconds since the attempt began")]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class LeaseReference(RequestModel):
    """A lease as its holder presents it."""

    task_id: Id
    attempt: Annotated[int, Field(ge=1, le=2**31 - 1)]
    token: UUID
    linked: bool = Field(default=False, description="A hint that comes with the claim")


class GrantedLease(BaseModel):
    """A lease as a claim grants it."""

    task_id: Id
    attempt: int
    token: UUID
    linked: bool


class LeaseRequest(RequestModel):
    lease: LeaseReference


class LeasesRequest(RequestModel):
    leases: Annotated[list[LeaseReference], Field(max_length=MAX_ITEMS)]
