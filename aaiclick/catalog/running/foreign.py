"""Datasets made of Parquet files that another program writes: pandas, polars, Spark, an exporter.

No manifest is needed: the files that match a prefix and a glob are the dataset, and ClickHouse reads them there.
Directories such as `day=2026-01-31/` are columns, as ClickHouse reads them (hive partitioning). A run of the job looks
at what there is and records its columns and a digest of the files' paths, sizes and times; dependents run if that
changed. Files below a directory that begins with `_` or `.` are not finished: a glob that matches one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.running import storage
from aaiclick.catalog.running.parquet import File, function_of
from aaiclick.catalog.running.run import OperatorRun
from aaiclick.data.context import DataContext
from aaiclick.data.s3 import SCHEME
from aaiclick.data.types import quote_text

INFERENCE = "schema_inference_mode = 'union', schema_inference_make_columns_nullable = 1"
"""A column that some files lack is NULL there."""

_HIDDEN = re.compile(r"(^|/)[_.]")
_KEYS = re.compile(r"(?<=/)[^/=]+(?==[^/]*/)")


async def run_parquet_files(run: OperatorRun) -> Mapping[str, Any]:
    """Nothing is made: what there is is attached."""
    return dict.fromkeys(run.work.outputs)


async def describe(context: DataContext, locations: Sequence[str]) -> storage.Columns:
    """Columns of the files at these locations; raises DatasetError if there are none, or some are not finished."""
    for location in locations:
        await _check_paths(context, location)
    selects = [f"SELECT * FROM {function_of('', location, None)}" for location in locations]  # noqa: S608
    described = [await storage.describe(context, select, INFERENCE) for select in selects]
    columns = dict(described[0])
    for location, other in zip(locations[1:], described[1:], strict=True):
        if dict(other) != columns:
            raise DatasetError(
                f"The files at {location} have other columns than those at {locations[0]}.",
                remedy="Register ranges with the same columns, in a dataset of their own otherwise.",
            )
    return tuple(columns.items())


async def _check_paths(context: DataContext, location: str) -> None:
    listed = await context.client.read_text(
        f"SELECT DISTINCT _path FROM {function_of('', location, None, 'One')}",  # noqa: S608
        query_id=context.query_id(),
    )
    base = len(_base(location))
    paths = sorted(path[base:] for path in listed.column(0).to_pylist())
    if not paths:
        raise DatasetError(
            f"No file matches {location}.", remedy="Have its writer run first, or change prefix or glob."
        )
    hidden = next((path for path in paths if _HIDDEN.search(path)), None)
    if hidden is not None:
        raise DatasetError(
            f"The glob of {location} matches {hidden!r:.200}, which its writer has not finished.",
            remedy="Use a glob that leaves such files out, for example day=*/*.parquet.",
        )
    first, *others = (set(_KEYS.findall(f"/{path}")) for path in paths)
    if any(other != first for other in others):
        raise DatasetError(
            f"Some files at {location} are in partition directories and some are not, or in others.",
            remedy="Use a glob that matches files of one kind of directory.",
        )


def _base(location: str) -> str:
    """The part of a location before its first directory with a wildcard, as ClickHouse's `_path` begins."""
    return location.removeprefix(SCHEME).partition("*")[0].rpartition("/")[0] + "/"


async def look(context: DataContext, layout: storage.Layout, locations: Sequence[str]) -> storage.Staged:
    """The files as they are now: rows and a digest of each partition. Only the partition column is read."""
    files = tuple(File(location, "", 0) for location in locations)
    key = quote_text("") if layout.partition_by is None else storage.partition_of(layout.partition_by)
    sources = " UNION ALL ".join(
        f"SELECT {key} AS {storage.PARTITION}, count() AS {storage.ROWS},"  # noqa: S608  (quoted, as everywhere here)
        f" sum(cityHash64(_path, _size, _time)) AS {storage.DIGEST} FROM {function_of('', location, layout.columns)}"
        f" GROUP BY {storage.PARTITION}"
        for location in locations
    )
    found = await context.client.read_text(
        f"SELECT {storage.PARTITION}, sum({storage.ROWS}) AS {storage.ROWS},"  # noqa: S608
        f" hex(sum({storage.DIGEST})) AS {storage.DIGEST} FROM ({sources})"
        f" GROUP BY {storage.PARTITION} ORDER BY {storage.PARTITION} LIMIT {storage.MAX_PARTITIONS + 1}",
        query_id=context.query_id(),
    )
    partitions = storage.partitions_found(found.to_pylist(), layout)
    rows = sum(count for count, _ in partitions.values())
    return storage.Staged("", layout, rows, partitions, attached=files)
