"""Rates per key: claims of the last period."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, Double, Index, Integer, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

from aaiclick.store.models.base import (
    Row,
    column,
    high_churn_storage,
    org_column,
    text_column,
    timestamp_column,
)


class RateLimit(Row, table=True):
    """Claims of tasks with one rate key, as counts per fiftieth of the period (`aaiclick_charge_rate`).

    `ends` are the ends of these parts, `counts` the claims in them. `allowed` and `seconds` are the rate of the last
    claim. `next_at` is set while tasks may be HELD for the rate: some are made ready then.
    """

    __tablename__ = "rate_limits"

    org_id: UUID = org_column(primary_key=True)
    key: str = text_column(primary_key=True)
    allowed: int = column(Integer())
    seconds: float = column(Double())
    charged_at: datetime = column(TIMESTAMP(timezone=True))
    next_at: datetime | None = timestamp_column()
    ends: list[datetime] = column(ARRAY(TIMESTAMP(timezone=True)))
    counts: list[int] = column(ARRAY(Integer()))

    __table_args__ = (
        CheckConstraint("allowed > 0 AND seconds > 0", name="positive"),
        CheckConstraint("cardinality(ends) = cardinality(counts)", name="slots"),
        Index("rate_limits_due", "next_at", postgresql_where=text("next_at IS NOT NULL")),
        high_churn_storage(fillfactor=50),
    )
