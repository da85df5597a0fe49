"""Datasets of Parquet files that another program writes: pandas, polars, Spark, an exporter.

No manifest is needed: the files that match a prefix and a glob are the dataset, and ClickHouse reads them in place.
Directories such as `day=2026-01-31/` become columns (hive partitioning). A run records the columns and a digest of the
files' paths, sizes and times; dependents run if the digest changed. Files below a directory that begins with `_` or `.`
are unfinished: a glob that matches one is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.execution import dataset_tables
from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.catalog.execution.parquet_storage import DataFile, table_function
from aaiclick.data.context import DataContext
from aaiclick.data.io.s3_client import SCHEME
from aaiclick.data.types import quote_text

INFERENCE = "schema_inference_mode = 'union', schema_inference_make_columns_nullable = 1"
"""A column that is missing in some files is NULL there."""

_HIDDEN = re.compile(r"(^|/)[_.]")
_KEYS = re.compile(r"(?<=/)[^/=]+(?==[^/]*/)")


async def run_parquet_files(run: OperatorRun) -> Mapping[str, object]:
    """Return no rows for any output: existing files are attached."""
    return dict.fromkeys(run.definition.outputs)


async def describe_files(context: DataContext, locations: Sequence[str]) -> dataset_tables.Columns:
    """Return the columns of the files at these locations.

    Raises DatasetError if there are none or some are unfinished.
    """
    for location in locations:
        await _check_paths(context, location)
    selects = [f"SELECT * FROM {table_function('', location, None)}" for location in locations]  # noqa: S608
    described = [await dataset_tables.describe_select(context, select, INFERENCE) for select in selects]
    columns = dict(described[0])
    for location, other in zip(locations[1:], described[1:], strict=True):
        if dict(other) != columns:
            raise DatasetError(
                f"The files at {location} have other columns than those at {locations[0]}.",
                remedy="Register only ranges with the same columns in one dataset.",
            )
    return tuple(columns.items())


async def _check_paths(context: DataContext, location: str) -> None:
    listed = await context.client.read_text(
        f"SELECT DISTINCT _path FROM {table_function('', location, None, 'One')}",  # noqa: S608
        query_id=context.query_id(),
    )
    base = len(_listing_base(location))
    paths = sorted(path[base:] for path in listed.column(0).to_pylist())
    if not paths:
        raise DatasetError(f"No file matches {location}.", remedy="Run its writer first, or change prefix or glob.")
    hidden = next((path for path in paths if _HIDDEN.search(path)), None)
    if hidden is not None:
        raise DatasetError(
            f"The glob of {location} matches {hidden!r:.200}, which is unfinished.",
            remedy="Use a glob that excludes such files, for example day=*/*.parquet.",
        )
    first_keys, *other_keys = (set(_KEYS.findall(f"/{path}")) for path in paths)
    if any(keys != first_keys for keys in other_keys):
        raise DatasetError(
            f"Some files at {location} are in different partition directories.",
            remedy="Use a glob that matches directories with the same partition columns.",
        )


def _listing_base(location: str) -> str:
    """Return the part of a location before its first wildcard directory: the prefix of ClickHouse's `_path`."""
    return location.removeprefix(SCHEME).partition("*")[0].rpartition("/")[0] + "/"


async def scan_files(
    context: DataContext, layout: dataset_tables.DatasetLayout, locations: Sequence[str]
) -> dataset_tables.StagedRows:
    """Return the current files with rows and digest of each partition. Only the partition column is read."""
    files = tuple(DataFile(location, "", 0) for location in locations)
    key = quote_text("") if layout.partition_by is None else dataset_tables.partition_expression(layout.partition_by)
    sources = " UNION ALL ".join(
        f"SELECT {key} AS {dataset_tables.PARTITION}, count() AS {dataset_tables.ROWS},"  # noqa: S608  (quoted, as everywhere here)
        f" sum(cityHash64(_path, _size, _time)) AS {dataset_tables.DIGEST}"
        f" FROM {table_function('', location, layout.columns)}"
        f" GROUP BY {dataset_tables.PARTITION}"
        for location in locations
    )
    result = await context.client.read_text(
        f"SELECT {dataset_tables.PARTITION}, sum({dataset_tables.ROWS}) AS {dataset_tables.ROWS},"  # noqa: S608
        f" hex(sum({dataset_tables.DIGEST})) AS {dataset_tables.DIGEST} FROM ({sources})"
        f" GROUP BY {dataset_tables.PARTITION} ORDER BY {dataset_tables.PARTITION}"
        f" LIMIT {dataset_tables.MAX_PARTITIONS + 1}",
        query_id=context.query_id(),
    )
    partitions = dataset_tables.parse_partitions(result.to_pylist(), layout)
    rows = sum(count for count, _ in partitions.values())
    return dataset_tables.StagedRows("", layout, rows, partitions, attached=files)
