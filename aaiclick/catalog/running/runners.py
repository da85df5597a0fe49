"""Which function does which built-in operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aaiclick.catalog.running.alerts import run_alert
from aaiclick.catalog.running.fetching import run_fetch
from aaiclick.catalog.running.following import run_follower
from aaiclick.catalog.running.foreign import run_parquet_files
from aaiclick.catalog.running.operators import run_python, run_sql
from aaiclick.catalog.running.ranges import run_aggregator, run_splitter
from aaiclick.catalog.running.run import OperatorRun

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
}
