"""Schemas of Objects and their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from aaiclick.api.field_types import ApiModel, RowModel

FileFormat = Literal["arrow", "avro", "csv", "json", "jsonl", "orc", "parquet", "tsv"]
ObjectState = Literal["named", "live", "literal", "unused", "unknown", "missing"]


class ColumnSchema(ApiModel):
    name: str
    type: str


class ObjectSummary(RowModel):
    table_id: str = Field(examples=["t7265312768204800"])
    name: str | None = Field(description="The name of a named Object")
    state: ObjectState = Field(
        description="literal: stored with its task; unused: to be dropped; unknown: not registered; "
        "missing: without a table"
    )
    rows: int
    bytes: int
    references: int
    owners: list[str] = Field(examples=[["result of task 7265312768204801 of job 7265312768204800"]])
    created_at: datetime | None
    changed_at: datetime | None


class ObjectSchema(ObjectSummary):
    shape: Literal["scalar", "column", "table", "record"]
    columns: list[ColumnSchema]


class RowsResponse(ApiModel):
    """Rows of an Object. Numbers past 2^53, decimals and bytes are text."""

    rows: list[dict[str, Any]]
