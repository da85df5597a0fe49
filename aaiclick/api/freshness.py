"""Schemas of the freshness of datasets."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field


class DatasetFreshness(BaseModel):
    """State of a dataset with a freshness policy."""

    dataset: str
    dag: str
    job: str
    policy: str = Field(examples=["at most 2h old", "by 07:00 MON-FRI Europe/Berlin"])
    state: Literal["fresh", "late", "will be late"]
    updated_at: datetime | None
    due_at: datetime = Field(description="When the next update is due, or was")
    expected_at: datetime | None = Field(description="When it is expected, by the medians of recent runs")
    causes: list[str] = Field(description="Why it is or will be late, from the dataset to the first cause")
