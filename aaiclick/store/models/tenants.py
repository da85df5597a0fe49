"""Organisations with queues and limits, users, roles, keys, secrets, sessions, and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    UniqueConstraint,
    text,
)
from sqlmodel import Field

from aaiclick.store.models.base import (
    Row,
    column,
    high_churn_storage,
    json_column,
    org_column,
    text_array_column,
    text_column,
    timestamp_column,
    timestamp_now_column,
    uuid_column,
    uuid_key,
)

ROLES = "('reader', 'writer', 'admin')"
SCOPES = "ARRAY['reader', 'writer', 'admin', 'worker']"


class Org(Row, table=True):
    """A tenant. `weight` is its share among waiting orgs; the limits apply to the sum of its queues.

    `rate_tokens` is the content of its token bucket at `rate_at`; `claim_xid` is the last claim under its limits: a
    claim that does not see that transaction would count wrongly, and skips the org.
    """

    __tablename__ = "orgs"

    id: UUID = uuid_key()
    name: str = text_column()
    slug: str = text_column()
    settings: dict[str, Any] = json_column()
    weight: int = column(Integer(), default=1, server="1")
    max_running: int | None = column(Integer(), null=True)
    rate_per_second: float | None = column(Double(), null=True)
    rate_burst: int | None = column(Integer(), null=True)
    rate_tokens: float | None = column(Double(), null=True)
    rate_at: datetime | None = timestamp_column()
    claim_xid: int | None = column(BigInteger(), null=True)
    paused_at: datetime | None = timestamp_column()
    created_at: datetime = timestamp_now_column()

    __table_args__ = (
        UniqueConstraint("slug"),
        CheckConstraint("slug ~ '^[a-z0-9][a-z0-9_-]*$'", name="slug"),
        CheckConstraint("weight >= 1", name="weight"),
        CheckConstraint("max_running >= 0", name="max_running"),
        CheckConstraint("rate_per_second > 0 AND rate_burst >= 1", name="rate"),
    )


class Queue(Row, table=True):
    """Settings of a queue of an org; a queue without a row has none."""

    __tablename__ = "queues"

    org_id: UUID = org_column(primary_key=True)
    name: str = text_column(primary_key=True)
    weight: int = column(Integer(), default=1, server="1")
    max_running: int | None = column(Integer(), null=True)
    rate_per_second: float | None = column(Double(), null=True)
    rate_burst: int | None = column(Integer(), null=True)
    rate_tokens: float | None = column(Double(), null=True)
    rate_at: datetime | None = timestamp_column()
    claim_xid: int | None = column(BigInteger(), null=True)
    paused_at: datetime | None = timestamp_column()
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        CheckConstraint("weight >= 1", name="weight"),
        CheckConstraint("max_running >= 0", name="max_running"),
        CheckConstraint("rate_per_second > 0 AND rate_burst >= 1", name="rate"),
    )


class QueueMinute(Row, table=True):
    """Completed and failed attempts of a queue in one minute.

    Workers add to it once a second; it is deleted after a day.
    """

    __tablename__ = "queue_minutes"

    org_id: UUID = org_column(primary_key=True)
    queue: str = text_column(primary_key=True)
    minute: datetime = column(DateTime(timezone=True), primary_key=True)
    completed: int = column(BigInteger())
    failed: int = column(BigInteger())

    __table_args__ = (
        CheckConstraint("completed >= 0 AND failed >= 0", name="counts"),
        Index("queue_minutes_minute", "minute"),
        high_churn_storage(fillfactor=50),
    )


class TaskType(Row, table=True):
    """Settings of a task type of an org; a type without a row has none."""

    __tablename__ = "task_types"

    org_id: UUID = org_column(primary_key=True)
    name: str = text_column(primary_key=True)
    retry_policy: dict[str, Any] | None = json_column(null=True)
    paused_at: datetime | None = timestamp_column()
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        Index("task_types_paused", "org_id", "name", postgresql_where=text("paused_at IS NOT NULL")),
    )


class User(Row, table=True):
    """A user (`external_id` is the identity provider's subject) with one platform role."""

    __tablename__ = "users"

    id: UUID = uuid_key()
    org_id: UUID = org_column()
    external_id: str = text_column()
    email: str | None = text_column(null=True)
    role: str = text_column()
    created_at: datetime = timestamp_now_column()
    disabled_at: datetime | None = timestamp_column()

    __table_args__ = (
        UniqueConstraint("external_id"),
        CheckConstraint(f"role IN {ROLES}", name="role"),
        Index("users_org", "org_id"),
    )


class OrgRole(Row, table=True):
    """A role that an org defines, for the visibility of datasets."""

    __tablename__ = "org_roles"

    id: UUID = uuid_key()
    org_id: UUID = org_column()
    slug: str = text_column()
    name: str = text_column()
    created_at: datetime = timestamp_now_column()

    __table_args__ = (UniqueConstraint("org_id", "slug"),)


class OrgRoleMembership(Row, table=True):
    __tablename__ = "org_role_memberships"

    role_id: UUID = uuid_column("org_roles.id", on_delete="CASCADE", primary_key=True)
    user_id: UUID = uuid_column("users.id", on_delete="CASCADE", primary_key=True)
    created_at: datetime = timestamp_now_column()

    __table_args__ = (Index("org_role_memberships_user", "user_id"),)


class ApiKey(Row, table=True):
    """An API key: only the hash of its secret is stored; `prefix` identifies it."""

    __tablename__ = "api_keys"

    id: UUID = uuid_key()
    org_id: UUID = org_column()
    user_id: UUID | None = uuid_column("users.id", null=True, on_delete="CASCADE")
    name: str = text_column()
    prefix: str = text_column()
    key_hash: bytes = column(LargeBinary())
    scopes: list[str] = text_array_column()
    created_at: datetime = timestamp_now_column()
    last_used_at: datetime | None = timestamp_column()
    expires_at: datetime | None = timestamp_column()
    revoked_at: datetime | None = timestamp_column()

    __table_args__ = (
        UniqueConstraint("prefix"),
        CheckConstraint(f"scopes <@ {SCOPES} AND cardinality(scopes) > 0", name="scopes"),
        Index("api_keys_org", "org_id", "id"),
        Index("api_keys_user", "user_id"),
    )


class OrgSecret(Row, table=True):
    """A secret of an org, encrypted (see `secret_encryption`). With `host` it is sent to that origin only."""

    __tablename__ = "org_secrets"

    org_id: UUID = org_column(primary_key=True)
    name: str = text_column(primary_key=True)
    host: str | None = text_column(null=True)
    ciphertext: bytes = column(LargeBinary())
    key_id: str = text_column()
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()

    __table_args__ = (CheckConstraint("name ~ '^[a-z][a-z0-9_-]{0,62}$'", name="named"),)


class AuditEntry(Row, table=True):
    """An audit entry: actor, action and target. Rows are never changed."""

    __tablename__ = "audit_log"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    org_id: UUID = org_column()
    at: datetime = timestamp_now_column()
    actor: str = text_column()
    action: str = text_column()
    target: str = text_column()
    request_id: str | None = text_column(null=True)
    detail: dict[str, Any] = json_column()

    __table_args__ = (Index("audit_log_org", "org_id", "id"),)


class IdempotencyKey(Row, table=True):
    """A stored response, so that a repeated request gets the same one without effect."""

    __tablename__ = "idempotency_keys"

    org_id: UUID = org_column(primary_key=True)
    route: str = text_column(primary_key=True)
    key: str = text_column(primary_key=True)
    body_hash: bytes = column(LargeBinary())
    status: int = column(Integer())
    body: str = text_column()
    created_at: datetime = timestamp_now_column()

    __table_args__ = (Index("idempotency_keys_age", "created_at"),)


class UiSession(Row, table=True):
    """A browser session: the hash of its token, and its key or user."""

    __tablename__ = "ui_sessions"

    token_hash: bytes = column(LargeBinary(), primary_key=True)
    key_id: UUID | None = uuid_column("api_keys.id", null=True, on_delete="CASCADE")
    user_id: UUID | None = uuid_column("users.id", null=True, on_delete="CASCADE")
    created_at: datetime = timestamp_now_column()
    expires_at: datetime = timestamp_column(null=False)

    __table_args__ = (
        CheckConstraint("num_nonnulls(key_id, user_id) = 1", name="holder"),
        Index("ui_sessions_age", "expires_at"),
        Index("ui_sessions_key", "key_id"),
        Index("ui_sessions_user", "user_id"),
    )
