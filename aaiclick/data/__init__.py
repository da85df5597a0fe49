"""Objects and Views: data in ClickHouse, worked with from Python.

    async with DataContext():
        prices = await create_object_from_value({"item": ["pen", "ink"], "price": [2, 7]})
        dear = prices.filter(col("price") > 3)
        print(await dear.data())

Names are imported when they are first used: a program that only mentions this package pays nothing for Arrow and SQL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aaiclick.data.column import Column, array, case, coalesce, col, if_else, length, lit, row_index, row_number
    from aaiclick.data.context import DataContext, get_data_context
    from aaiclick.data.create import (
        create_object_from_query,
        create_object_from_value,
        delete_object,
        insert,
        list_objects,
        open_object,
    )
    from aaiclick.data.grouping import GroupBy
    from aaiclick.data.ingest import create_object_from_file
    from aaiclick.data.lifecycle import LifecycleHandler, LocalLifecycleHandler
    from aaiclick.data.object import Object
    from aaiclick.data.s3 import S3Access
    from aaiclick.data.view import View, is_reference, open_reference

_HOMES = {
    "column": ("Column", "array", "case", "coalesce", "col", "if_else", "length", "lit", "row_index", "row_number"),
    "context": ("DataContext", "get_data_context"),
    "create": (
        "create_object_from_query",
        "create_object_from_value",
        "delete_object",
        "insert",
        "list_objects",
        "open_object",
    ),
    "ingest": ("create_object_from_file",),
    "lifecycle": ("LifecycleHandler", "LocalLifecycleHandler"),
    "object": ("Object",),
    "s3": ("S3Access",),
    "grouping": ("GroupBy",),
    "view": ("View", "is_reference", "open_reference"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Column",
    "DataContext",
    "GroupBy",
    "LifecycleHandler",
    "LocalLifecycleHandler",
    "Object",
    "S3Access",
    "View",
    "array",
    "case",
    "coalesce",
    "col",
    "create_object_from_file",
    "create_object_from_query",
    "create_object_from_value",
    "delete_object",
    "get_data_context",
    "if_else",
    "insert",
    "is_reference",
    "length",
    "list_objects",
    "lit",
    "open_object",
    "open_reference",
    "row_index",
    "row_number",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
