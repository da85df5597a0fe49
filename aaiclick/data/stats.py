"""Summary statistics of an Object, each computed in one query."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from aaiclick.data.create import create_object_from_value
from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.column import Column
from aaiclick.data.expressions.constructors import col, length
from aaiclick.data.types import DataType

if TYPE_CHECKING:
    from aaiclick.data.object import Object

STATISTICS = ("count", "null_count", "mean", "std", "min", "25%", "50%", "75%", "max")


async def describe_columns(obj: Object) -> Object:
    """Summarise every column that is not an array, tuple or map.

    Numeric columns are summarised as Float64, or as text if their minimum or maximum would be rounded; other columns
    have no mean and are summarised as text.
    """
    dtypes = {name: dtype for name, dtype in obj.schema.items() if not dtype.is_structure}
    if not dtypes:
        raise DataTypeError("There is no column to describe.", remedy="Arrays and structs have no summary.")
    columns_by_label = {
        f"{i}/{statistic}": _statistic_column(name, dtype, statistic)
        for i, (name, dtype) in enumerate(dtypes.items())
        for statistic in STATISTICS
    }
    selected = {label: column for label, column in columns_by_label.items() if column is not None}
    (row,) = await obj.select(**selected).rows()
    columns: dict[str, object] = {"statistic": list(STATISTICS)}
    schema: dict[str, str | type] = {}
    for i, (name, dtype) in enumerate(dtypes.items()):
        values = [row.get(f"{i}/{s}") for s in STATISTICS]
        is_float = dtype.is_numeric and all(map(_is_exact_float, values))
        columns[name] = [None if value is None else float(value) if is_float else str(value) for value in values]
        schema[name] = "Nullable(Float64)" if is_float else "Nullable(String)"
    return await create_object_from_value(columns, schema=schema)


def _statistic_column(name: str, dtype: DataType, statistic: str) -> Column | None:
    column = col(name)
    if statistic == "count":
        return column.count()
    if statistic == "null_count":
        return length() - column.count()
    if statistic in ("min", "max"):
        return column.min() if statistic == "min" else column.max()
    if not dtype.is_numeric:
        return None
    if statistic in ("mean", "std"):
        return column.mean() if statistic == "mean" else column.std()
    return column.quantile(int(statistic.removesuffix("%")) / 100)


def _is_exact_float(value: Any) -> bool:
    """Whether a Float64 shows the same number; a Decimal such as 0.1 is shown the same."""
    if isinstance(value, Decimal):
        return Decimal(repr(float(value))) == value
    return not isinstance(value, int) or int(float(value)) == value


async def correlation_matrix(obj: Object) -> Object:
    """Compute the Pearson correlation of every pair of numeric columns."""
    names = [name for name, dtype in obj.schema.items() if dtype.is_numeric]
    if not names:
        raise DataTypeError("There is no numeric column.", remedy="Cast one.")
    pairs = [(i, j) for i in range(len(names)) for j in range(i, len(names))]
    (row,) = await obj.select(**{f"{i}/{j}": col(names[i]).corr(col(names[j])) for i, j in pairs}).rows()
    columns: dict[str, object] = {"column": names}
    for j, name in enumerate(names):
        columns[name] = [row[f"{min(i, j)}/{max(i, j)}"] for i in range(len(names))]
    return await create_object_from_value(columns, schema=dict.fromkeys(names, "Nullable(Float64)"))
