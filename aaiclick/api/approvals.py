"""Schemas of approvals: questions to people, their decisions, and one-time links."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from aaiclick.api.field_types import Arguments, Name, RequestModel, Snowflake, check_storable
from aaiclick.api.json_schema_limits import count_values

ApprovalState = Literal["waiting", "approved", "rejected", "expired", "cancelled"]
Reason = Annotated[str, StringConstraints(max_length=2_000), AfterValidator(check_storable)]
Token = Annotated[str, StringConstraints(min_length=20, max_length=100, pattern=r"^[A-Za-z0-9_-]+$")]


MAX_SHOWN_VALUES = 20_000
MAX_SHOWN_JSON = 250_000


def check_shown(shown: object) -> None:
    """Refuse data that takes long to show; raises ValueError."""
    is_small = all(count <= MAX_SHOWN_VALUES for count, _ in count_values(shown))
    if not is_small or len(json.dumps(shown)) > MAX_SHOWN_JSON:
        raise ValueError(f"it has more than {MAX_SHOWN_VALUES:,} values, or {MAX_SHOWN_JSON:,} characters")


class ShownData(BaseModel):
    """What the decision is about: the first rows of a table, or a text."""

    columns: list[str] = Field(default_factory=list)
    rows: list[list[Any]] = Field(default_factory=list)
    total: int | None = Field(default=None, description="Rows of the whole table")
    table_id: str | None = Field(default=None, description="The Object, for /v1/objects")
    text: str | None = None


class Approval(BaseModel):
    """A task that waits for a person, or did."""

    id: Snowflake
    state: ApprovalState
    title: str
    role: str = Field(description="The members of this role decide; or reader, writer or admin")
    task_id: Snowflake
    job_id: Snowflake | None
    job_name: str | None
    created_at: datetime
    expires_at: datetime = Field(description="When the default counts, or the task fails")
    decided_at: datetime | None
    decided_by: str | None
    reason: str | None


class ApprovalDetail(Approval):
    """An approval with its data and its form."""

    form: dict[str, Any] | None = Field(description="JSON Schema of the values")
    shown: ShownData | None
    values: dict[str, Any] | None = Field(description="The values of the decision")
    may_decide: bool = Field(description="Whether the caller may decide it now")


class DecideRequest(RequestModel):
    """A decision; `values` are those of the form."""

    approve: bool
    reason: Reason = ""
    values: Arguments = Field(default_factory=dict)


class CreateLinkRequest(RequestModel):
    """A link for a person without an account."""

    recipient: Name = Field(examples=["ada@example.org"], description="Is recorded with the decision")
    valid_seconds: Annotated[float, Field(gt=0, le=366 * 86_400)] = 7 * 86_400


class ApprovalLinkResponse(BaseModel):
    """A link that decides one approval once. It is shown only now."""

    token: str
    url: str = Field(description="A path, or a URL if AAICLICK_SERVER_PUBLIC_URL is set")
    expires_at: datetime


class LinkRequest(RequestModel):
    """The token of a link."""

    token: Token


class DecideByLinkRequest(LinkRequest):
    """The token of a link, and the decision."""

    decision: DecideRequest
