"""Notifications: channels, rules that choose them, and what is sent about incidents."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Column, Double, ForeignKey, Identity, Index, text
from sqlmodel import Field

from aaiclick.store.models.base import (
    Row,
    column,
    high_churn_storage,
    json_column,
    org_column,
    snowflake_column,
    text_array_column,
    text_column,
    timestamp_column,
    timestamp_now_column,
)


class NotificationChannel(Row, table=True):
    """Where messages about incidents are sent; `config` names secrets and contains none.

    `roles` decide which causes a message may contain, as the roles of a user do.
    """

    __tablename__ = "notification_channels"

    org_id: UUID = org_column(primary_key=True)
    name: str = text_column(primary_key=True)
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()
    channel_type: str = text_column()
    config: dict[str, Any] = json_column()
    roles: list[str] = text_array_column()
    digest_seconds: float | None = column(Double(), null=True)
    quiet_from: str | None = text_column(null=True)
    quiet_until: str | None = text_column(null=True)
    timezone: str = text_column(default="UTC")

    __table_args__ = (
        CheckConstraint("channel_type IN ('webhook', 'slack', 'teams', 'pagerduty', 'email')", name="channel_type"),
        CheckConstraint("digest_seconds > 0", name="digest"),
        CheckConstraint("(quiet_from IS NULL) = (quiet_until IS NULL)", name="quiet"),
    )


class NotificationRule(Row, table=True):
    """Which incidents are sent to which channels; NULL and empty match everything. Names may contain * and ?."""

    __tablename__ = "notification_rules"

    org_id: UUID = org_column(primary_key=True)
    name: str = text_column(primary_key=True)
    created_at: datetime = timestamp_now_column()
    updated_at: datetime = timestamp_now_column()
    rules: list[str] = text_array_column()
    min_severity: str = text_column(default="info")
    dag_name: str | None = text_column(null=True)
    job_name: str | None = text_column(null=True)
    task_type: str | None = text_column(null=True)
    tag: str | None = text_column(null=True)
    channels: list[str] = text_array_column()
    escalate_after_seconds: float | None = column(Double(), null=True)
    escalate_to: list[str] = text_array_column()

    __table_args__ = (
        CheckConstraint("min_severity IN ('info', 'warning', 'error', 'critical')", name="min_severity"),
        CheckConstraint("(escalate_after_seconds IS NULL) = (cardinality(escalate_to) = 0)", name="escalation"),
        CheckConstraint("escalate_after_seconds > 0", name="escalate_after"),
    )


class Notification(Row, table=True):
    """A message about an incident to a channel: waits until `due_at`, then is delivered by the task `task_id`.

    A digest is one task of several notifications.
    """

    __tablename__ = "notifications"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    org_id: UUID = org_column()
    incident_id: int = column(BigInteger(), ForeignKey("incidents.id", ondelete="CASCADE"))
    created_at: datetime = timestamp_now_column()
    due_at: datetime = timestamp_now_column()
    channel: str = text_column()
    event: str = text_column()
    task_id: int | None = snowflake_column(null=True)
    sent_at: datetime | None = timestamp_column()
    delivered_at: datetime | None = timestamp_column()

    __table_args__ = (
        CheckConstraint("event IN ('opened', 'escalated', 'reminder', 'closed')", name="event"),
        CheckConstraint("(task_id IS NULL) = (sent_at IS NULL)", name="sent"),
        Index(
            "notifications_once",
            "incident_id",
            "channel",
            "event",
            unique=True,
            postgresql_where=text("event <> 'reminder'"),
        ),
        Index("notifications_incident", "incident_id"),
        Index("notifications_org", "org_id", "id"),
        Index("notifications_due", "due_at", postgresql_where=text("task_id IS NULL")),
        Index("notifications_sent", "org_id", "channel", "sent_at", postgresql_where=text("task_id IS NOT NULL")),
        Index("notifications_undelivered", "id", postgresql_where=text("delivered_at IS NULL AND task_id IS NOT NULL")),
        high_churn_storage(fillfactor=70),
    )
