"""Whose work it is and who may see it: orgs with their limits, users, roles, keys, and the record of what they did."""

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

from aaiclick.store.models.base import Row, busy, column, document, many_words, moment, now, org, uuid, uuid_key, words

ROLES = "('reader', 'writer', 'admin')"
SCOPES = "ARRAY['reader', 'writer', 'admin', 'worker']"


class Org(Row, table=True):
    """A tenant. `weight` is its share when several wait; the limits hold over all its queues.

    `rate_tokens` at `rate_at` is what its bucket held; `claim_xid` is the last claim under its limits: a claim that
    cannot see that one would count wrongly, and leaves the org to the next.
    """

    __tablename__ = "orgs"

    id: UUID = uuid_key()
    name: str = words()
    slug: str = words()
    settings: dict[str, Any] = document()
    weight: int = column(Integer(), default=1, server="1")
    max_running: int | None = column(Integer(), null=True)
    rate_per_second: float | None = column(Double(), null=True)
    rate_burst: int | None = column(Integer(), null=True)
    rate_tokens: float | None = column(Double(), null=True)
    rate_at: datetime | None = moment()
    claim_xid: int | None = column(BigInteger(), null=True)
    paused_at: datetime | None = moment()
    created_at: datetime = now()

    __table_args__ = (
        UniqueConstraint("slug"),
        CheckConstraint("slug ~ '^[a-z0-9][a-z0-9_-]*$'", name="slug"),
        CheckConstraint("weight >= 1", name="weight"),
        CheckConstraint("max_running >= 0", name="max_running"),
        CheckConstraint("rate_per_second > 0 AND rate_burst >= 1", name="rate"),
    )


class Queue(Row, table=True):
    """Settings of one queue of one org; a queue without a row has none of them."""

    __tablename__ = "queues"

    org_id: UUID = org(primary_key=True)
    name: str = words(primary_key=True)
    weight: int = column(Integer(), default=1, server="1")
    max_running: int | None = column(Integer(), null=True)
    rate_per_second: float | None = column(Double(), null=True)
    rate_burst: int | None = column(Integer(), null=True)
    rate_tokens: float | None = column(Double(), null=True)
    rate_at: datetime | None = moment()
    claim_xid: int | None = column(BigInteger(), null=True)
    paused_at: datetime | None = moment()
    created_at: datetime = now()
    updated_at: datetime = now()

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        CheckConstraint("weight >= 1", name="weight"),
        CheckConstraint("max_running >= 0", name="max_running"),
        CheckConstraint("rate_per_second > 0 AND rate_burst >= 1", name="rate"),
    )


class QueueMinute(Row, table=True):
    """What workers finished of one queue in one minute: attempts that completed and attempts that failed. They tell of
    it once a second, not with each task; it is forgotten after a day.
    """

    __tablename__ = "queue_minutes"

    org_id: UUID = org(primary_key=True)
    queue: str = words(primary_key=True)
    minute: datetime = column(DateTime(timezone=True), primary_key=True)
    completed: int = column(BigInteger())
    failed: int = column(BigInteger())

    __table_args__ = (
        CheckConstraint("completed >= 0 AND failed >= 0", name="counts"),
        Index("queue_minutes_minute", "minute"),
        busy(fillfactor=50),
    )


class TaskType(Row, table=True):
    """Settings of one type of task of one org; a type without a row has none of them."""

    __tablename__ = "task_types"

    org_id: UUID = org(primary_key=True)
    name: str = words(primary_key=True)
    retry_policy: dict[str, Any] | None = document(null=True)
    paused_at: datetime | None = moment()
    created_at: datetime = now()
    updated_at: datetime = now()

    __table_args__ = (
        CheckConstraint("name <> ''", name="named"),
        Index("task_types_paused", "org_id", "name", postgresql_where=text("paused_at IS NOT NULL")),
    )


class User(Row, table=True):
    """A person (`external_id` is the identity provider's subject) with one platform role."""

    __tablename__ = "users"

    id: UUID = uuid_key()
    org_id: UUID = org()
    external_id: str = words()
    email: str | None = words(null=True)
    role: str = words()
    created_at: datetime = now()
    disabled_at: datetime | None = moment()

    __table_args__ = (
        UniqueConstraint("external_id"),
        CheckConstraint(f"role IN {ROLES}", name="role"),
        Index("users_org", "org_id"),
    )


class OrgRole(Row, table=True):
    """A role that an org defines, for the visibility of datasets."""

    __tablename__ = "org_roles"

    id: UUID = uuid_key()
    org_id: UUID = org()
    slug: str = words()
    name: str = words()
    created_at: datetime = now()

    __table_args__ = (UniqueConstraint("org_id", "slug"),)


class OrgRoleMembership(Row, table=True):
    __tablename__ = "org_role_memberships"

    role_id: UUID = uuid("org_roles.id", on_delete="CASCADE", primary_key=True)
    user_id: UUID = uuid("users.id", on_delete="CASCADE", primary_key=True)
    created_at: datetime = now()

    __table_args__ = (Index("org_role_memberships_user", "user_id"),)


class ApiKey(Row, table=True):
    """A credential: only the hash of its secret is kept, `prefix` is what it is found and recognised by."""

    __tablename__ = "api_keys"

    id: UUID = uuid_key()
    org_id: UUID = org()
    user_id: UUID | None = uuid("users.id", null=True, on_delete="CASCADE")
    name: str = words()
    prefix: str = words()
    key_hash: bytes = column(LargeBinary())
    scopes: list[str] = many_words()
    created_at: datetime = now()
    last_used_at: datetime | None = moment()
    expires_at: datetime | None = moment()
    revoked_at: datetime | None = moment()

    __table_args__ = (
        UniqueConstraint("prefix"),
        CheckConstraint(f"scopes <@ {SCOPES} AND cardinality(scopes) > 0", name="scopes"),
        Index("api_keys_org", "org_id", "id"),
        Index("api_keys_user", "user_id"),
    )


class OrgSecret(Row, table=True):
    """A secret of an org, encrypted (`aaiclick.store.secret_keys`). With `host` it is sent to that origin only."""

    __tablename__ = "org_secrets"

    org_id: UUID = org(primary_key=True)
    name: str = words(primary_key=True)
    host: str | None = words(null=True)
    ciphertext: bytes = column(LargeBinary())
    key_id: str = words()
    created_at: datetime = now()
    updated_at: datetime = now()

    __table_args__ = (CheckConstraint("name ~ '^[a-z][a-z0-9_-]{0,62}$'", name="named"),)


class AuditEntry(Row, table=True):
    """Who did what to which thing. Rows are added and never changed."""

    __tablename__ = "audit_log"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    org_id: UUID = org()
    at: datetime = now()
    actor: str = words()
    action: str = words()
    target: str = words()
    request_id: str | None = words(null=True)
    detail: dict[str, Any] = document()

    __table_args__ = (Index("audit_log_org", "org_id", "id"),)


class IdempotencyKey(Row, table=True):
    """What a request was answered, so that its repetition gets the same answer and does nothing."""

    __tablename__ = "idempotency_keys"

    org_id: UUID = org(primary_key=True)
    route: str = words(primary_key=True)
    key: str = words(primary_key=True)
    body_hash: bytes = column(LargeBinary())
    status: int = column(Integer())
    body: str = words()
    created_at: datetime = now()

    __table_args__ = (Index("idempotency_keys_age", "created_at"),)


class UiSession(Row, table=True):
    """A browser that signed in: the hash of its token, and the key or the user that it speaks for."""

    __tablename__ = "ui_sessions"

    token_hash: bytes = column(LargeBinary(), primary_key=True)
    key_id: UUID | None = uuid("api_keys.id", null=True, on_delete="CASCADE")
    user_id: UUID | None = uuid("users.id", null=True, on_delete="CASCADE")
    created_at: datetime = now()
    expires_at: datetime = moment(null=False)

    __table_args__ = (
        CheckConstraint("num_nonnulls(key_id, user_id) = 1", name="holder"),
        Index("ui_sessions_age", "expires_at"),
        Index("ui_sessions_key", "key_id"),
        Index("ui_sessions_user", "user_id"),
    )
