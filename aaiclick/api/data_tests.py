"""Schemas of the results of data tests."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from aaiclick.api.field_types import RowModel, Snowflake


class DataTestResult(RowModel):
    """The result of one data test of one update."""

    id: Snowflake
    subject: str = Field(description="DAG.OUTPUT, or the type of a task outside of a DAG")
    dataset: str | None = Field(description="Name of the dataset")
    partition_key: str
    task_id: Snowflake
    job_id: Snowflake | None
    tested_at: datetime
    number: int = Field(description="Position of the test in its list")
    test: str
    on_failure: Literal["block", "quarantine", "warn"]
    outcome: Literal["passed", "warned", "quarantined", "blocked"]
    rows: int
    failing_rows: int
    message: str
    sample_table: str | None = Field(description="Object with some failing rows: GET /v1/objects/{table_id}/rows")
    latest: bool = Field(description="No later update of the same partition was tested")
