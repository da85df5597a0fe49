"""Summaries of a whole table, each computed in one query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aaiclick.data.column import Column, col, length
from aaiclick.data.create import create_object_from_value
from aaiclick.data.errors import DataTypeError
from aaiclick.data.types import DataType

if TYPE_CHECKING:
    from aaiclick.data.object import Object

STATISTICS = ("count", "null_count", "mean", "std", "min", "25%", "50%", "75%", "max")


async def describe(obj: Object) -> Object:
    """Count, NULLs, mean, deviation, extremes and quartiles of every plain column.

    Numeric columns are summarised as Float64, all others (which have no mean) as text.
    """
    kinds = {name: kind for name, kind in obj.schema.items() if not kind.is_structure}
    if not kinds:
        raise DataTypeError("There is no column to describe.", remedy="Arrays and structs have no summary.")
    asked = {f"{i}/{s}": _statistic(name, kind, s) for i, (name, kind) in enumerate(kinds.items()) for s in STATISTICS}
    wanted = {label: column for label, column in asked.items() if column is not None}
    (found,) = await obj.select(**wanted).rows()
    columns: dict[str, Any] = {"statistic": list(STATISTICS)}
    schema: dict[str, str | type] = {}
    for i, (name, kind) in enumerate(kinds.items()):
        values = [found.get(f"{i}/{s}") for s in STATISTICS]
        columns[name] = [_shown(value, kind) for value in values]
        schema[name] = "Nullable(Float64)" if kind.is_numeric else "Nullable(String)"
    return await create_object_from_value(columns, schema=schema)


def _statistic(name: str, kind: DataType, statistic: str) -> Column | None:
    column = col(name)
    if statistic == "count":
        return column.count()
    if statistic == "null_count":
        return length() - column.count()
    if statistic in ("min", "max"):
        return column.min() if statistic == "min" else column.max()
    if not kind.is_numeric:
        return None
    if statistic in ("mean", "std"):
        return column.mean() if statistic == "mean" else column.std()
    return column.quantile(int(statistic.removesuffix("%")) / 100)


def _shown(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    return float(value) if kind.is_numeric else str(value)


async def correlation(obj: Object) -> Object:
    """Pearson correlation of every pair of numeric columns."""
    names = [name for name, kind in obj.schema.items() if kind.is_numeric]
    if not names:
        raise DataTypeError("There is no numeric column.", remedy="Cast one.")
    pairs = [(i, j) for i in range(len(names)) for j in range(i, len(names))]
    (found,) = await obj.select(**{f"{i}/{j}": col(names[i]).corr(col(names[j])) for i, j in pairs}).rows()
    columns: dict[str, Any] = {"column": names}
    for j, name in enumerate(names):
        columns[name] = [found[f"{min(i, j)}/{max(i, j)}"] for i in range(len(names))]
    return await create_object_from_value(columns, schema=dict.fromkeys(names, "Nullable(Float64)"))
