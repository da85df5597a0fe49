"""Incidents: what went wrong, once per rule and fingerprint, and how often."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Column, Identity, Index, Integer, Uuid, text
from sqlmodel import Field

from aaiclick.store.models.base import (
    Row,
    column,
    high_churn_storage,
    org_column,
    snowflake_column,
    text_array_column,
    text_column,
    timestamp_column,
    timestamp_now_column,
)


class Incident(Row, table=True):
    """A failure that has to be noticed; at most one is open per organisation, rule and fingerprint.

    `job_id` and `task_id` are those of the last occurrence. There are no foreign keys: an incident outlives them.
    """

    __tablename__ = "incidents"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    org_id: UUID = org_column()
    opened_at: datetime = timestamp_now_column()
    last_at: datetime = timestamp_now_column()
    count: int = column(BigInteger(), default=1, server="1")
    rule: str = text_column()
    fingerprint: str = text_column()
    severity: str = text_column()
    title: str = text_column()
    cause: str | None = text_column(null=True)
    dag_name: str | None = text_column(null=True)
    job_name: str | None = text_column(null=True)
    task_type: str | None = text_column(null=True)
    error_fingerprint: str | None = text_column(null=True)
    tags: list[str] = text_array_column()
    job_id: int | None = snowflake_column(null=True)
    task_id: int | None = snowflake_column(null=True)
    acknowledged_at: datetime | None = timestamp_column()
    acknowledged_by: str | None = text_column(null=True)
    snoozed_until: datetime | None = timestamp_column()
    escalate_at: datetime | None = timestamp_column()
    escalated_at: datetime | None = timestamp_column()
    closed_at: datetime | None = timestamp_column()
    closed_by: str | None = text_column(null=True)
    opened_routed_at: datetime | None = timestamp_column()
    closed_routed_at: datetime | None = timestamp_column()

    __table_args__ = (
        CheckConstraint("severity IN ('info', 'warning', 'error', 'critical')", name="severity"),
        CheckConstraint("count >= 1", name="count"),
        CheckConstraint("(closed_at IS NULL) = (closed_by IS NULL)", name="closed"),
        CheckConstraint("(acknowledged_at IS NULL) = (acknowledged_by IS NULL)", name="acknowledged"),
        Index(
            "incidents_open",
            "org_id",
            "rule",
            "fingerprint",
            unique=True,
            postgresql_where=text("closed_at IS NULL"),
        ),
        Index("incidents_key", "org_id", "rule", "fingerprint", "id"),
        Index("incidents_org", "org_id", "id"),
        Index("incidents_unclosed", "id", postgresql_where=text("closed_at IS NULL")),
        Index(
            "incidents_unrouted",
            "id",
            postgresql_where=text("opened_routed_at IS NULL OR (closed_at IS NOT NULL AND closed_routed_at IS NULL)"),
        ),
        Index("incidents_escalating", "escalate_at", postgresql_where=text("escalate_at IS NOT NULL")),
        Index("incidents_snoozed", "snoozed_until", postgresql_where=text("snoozed_until IS NOT NULL")),
        Index(
            "incidents_failing_channel",
            "org_id",
            "task_type",
            postgresql_where=text("closed_at IS NULL AND rule = 'channel_failing'"),
        ),
        Index("incidents_closed", "closed_at", postgresql_where=text("closed_at IS NOT NULL")),
        high_churn_storage(fillfactor=70),
    )


class IncidentOccurrence(Row, table=True):
    """Further occurrences of an incident, until the leader adds them to its count.

    Appended and never updated: failures of one fingerprint do not wait for each other. Without a foreign key to `orgs`,
    which would lock one row from every failure.
    """

    __tablename__ = "incident_occurrences"

    id: int = Field(default=None, sa_column=Column(BigInteger(), Identity(always=True), primary_key=True))
    org_id: UUID = column(Uuid())
    at: datetime = timestamp_now_column()
    count: int = column(Integer())
    rule: str = text_column()
    fingerprint: str = text_column()
    job_id: int | None = snowflake_column(null=True)
    task_id: int | None = snowflake_column(null=True)

    __table_args__ = (CheckConstraint("count >= 1", name="count"), high_churn_storage())
