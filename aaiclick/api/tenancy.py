"""Schemas of organisations, users, roles, API keys, secrets and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, StringConstraints

from aaiclick.api.field_types import ApiModel, Name, RequestModel, Seconds, Slug, Snowflake, check_storable
from aaiclick.api.workers import LimitsRequest

Scope = Literal["reader", "writer", "admin", "worker"]
Role = Literal["reader", "writer", "admin"]
Subject = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(check_storable)]


class CreateOrgRequest(LimitsRequest):
    name: Name
    slug: Slug


class UpdateOrgRequest(LimitsRequest):
    name: Name | None = Field(default=None, description="Omitted: unchanged")


class Org(ApiModel):
    id: UUID
    name: str
    slug: str
    weight: int
    max_running: int | None
    rate_per_second: float | None
    rate_burst: int | None
    paused_at: datetime | None
    created_at: datetime


class CreateUserRequest(RequestModel):
    external_id: Subject
    email: Name | None = None
    role: Role


class UpdateUserRequest(RequestModel):
    """Changes of a user; an omitted field is unchanged."""

    email: Name | None = Field(default=None, description="Null removes it")
    role: Role | None = None
    disabled: bool | None = None


class User(ApiModel):
    id: UUID
    external_id: str
    email: str | None
    role: Role
    created_at: datetime
    disabled_at: datetime | None


class CreateRoleRequest(RequestModel):
    slug: Slug
    name: Name


class RoleResponse(ApiModel):
    id: UUID
    slug: str
    name: str
    created_at: datetime


class Membership(ApiModel):
    role_id: UUID
    user_id: UUID
    external_id: str
    created_at: datetime


class CreateKeyRequest(RequestModel):
    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=4)]
    user_id: UUID | None = None
    lifetime_seconds: Seconds | None = None


class ApiKey(ApiModel):
    id: UUID
    name: str
    prefix: str
    scopes: list[Scope]
    user_id: UUID | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


class CreatedKeyResponse(ApiKey):
    """A new API key with its secret text, which is shown only here."""

    key: str


class SetSecretRequest(RequestModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    value: Annotated[SecretStr, Field(max_length=65_536, json_schema_extra={"writeOnly": True})]
    host: Annotated[str, StringConstraints(min_length=1, max_length=300)] | None = Field(
        default=None, description="Send it to this host only: api.example.com", examples=["api.example.com"]
    )


class SecretSummary(ApiModel):
    """A secret without its value."""

    name: str
    host: str | None = Field(description="The only host that it is sent to")
    source: Literal["stored", "map"] = Field(description="Stored here, or an entry of the operator's map")
    created_at: datetime | None
    updated_at: datetime | None


class AuditEntry(ApiModel):
    id: Snowflake
    at: datetime
    actor: str
    action: str
    target: str
    request_id: str | None
    detail: dict[str, object]


class WhoamiResponse(ApiModel):
    """The organisation, actor and scopes of the credential."""

    org_id: UUID
    actor: str
    scopes: list[str]
