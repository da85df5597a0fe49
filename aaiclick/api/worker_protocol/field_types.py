"""Field types and leases that several schemas of the worker protocol share.

Leases, claims and similar values are dataclasses of the store, which define their own JSON format
(`aaiclick.store.json_types`): schemas contain them as they are.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from aaiclick.api.field_types import MAX_ITEMS, Name, RequestModel, check_storable
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.json_types import SnowflakeId

Text = Annotated[str, StringConstraints(max_length=20_000), AfterValidator(check_storable)]
ShortText = Annotated[str, StringConstraints(max_length=1_000), AfterValidator(check_storable)]
TableName = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(check_storable)]
Queues = Annotated[list[Name], Field(max_length=1_000)]
Ids = Annotated[list[SnowflakeId], Field(max_length=MAX_ITEMS)]
LeaseSeconds = Annotated[float, Field(gt=0, le=30 * 86_400, description="Lifetime of a lease that is not renewed")]
WaitSeconds = Annotated[float, Field(ge=0, le=60)]
ElapsedSeconds = Annotated[float, Field(ge=0, le=100 * 365 * 86_400, description="Seconds since the attempt began")]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
RowCount = Annotated[int, Field(ge=0, le=2**63 - 1)]


class LeaseRequest(RequestModel):
    lease: Lease


class LeasesRequest(RequestModel):
    leases: Annotated[list[Lease], Field(max_length=MAX_ITEMS)]
