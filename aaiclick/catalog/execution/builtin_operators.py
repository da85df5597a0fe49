"""The functions of the built-in operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aaiclick.catalog.execution.alert_operator import run_alert
from aaiclick.catalog.execution.follower_operator import run_follower
from aaiclick.catalog.execution.http_fetch_operator import run_fetch
from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.catalog.execution.parquet_files_operator import run_parquet_files
from aaiclick.catalog.execution.postgres_operators import run_postgres_read, run_postgres_write
from aaiclick.catalog.execution.range_aggregator_operator import run_aggregator, run_splitter
from aaiclick.catalog.execution.sql_and_python_operators import run_python, run_sql

Runner = Callable[[OperatorRun], Awaitable[Mapping[str, Any]]]

RUNNERS: dict[str, Runner] = {
    "sql": run_sql,
    "python": run_python,
    "range_aggregator": run_aggregator,
    "range_splitter": run_splitter,
    "follower": run_follower,
    "block_follower": run_follower,
    "alert_evaluate": run_alert,
    "http_fetch": run_fetch,
    "parquet_files": run_parquet_files,
    "postgres_read": run_postgres_read,
    "postgres_write": run_postgres_write,
}
