"""Schemas of Objects and their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field


class ColumnSchema(BaseModel):
    name: str
    type: str


class ObjectSummary(BaseModel):
    table_id: str = Field(examples=["t7265312768204800"])
    name: str | None = Field(description="The name of a named Object")
    rows: int
    bytes: int
    changed_at: datetime


class ObjectSchema(ObjectSummary):
    shape: Literal["scalar", "column", "table", "record"]
    columns: list[ColumnSchema]


class RowsResponse(BaseModel):
    """Rows of an Object. Numbers past 2^53, decimals and bytes are text."""

    rows: list[dict[str, Any]]
