"""Objects and Views: data in ClickHouse, worked with from Python.

async with DataContext():
    prices = await create_object_from_value({"item": ["pen", "ink"], "price": [2, 7]})
    dear = prices.filter(col("price") > 3)
    print(await dear.data())
"""

from __future__ import annotations

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
from aaiclick.data.ingest import create_object_from_file
from aaiclick.data.lifecycle import LifecycleHandler, LocalLifecycleHandler
from aaiclick.data.object import Object
from aaiclick.data.relational import GroupBy
from aaiclick.data.view import View, is_reference, open_reference

__all__ = [
    "Column",
    "DataContext",
    "GroupBy",
    "LifecycleHandler",
    "LocalLifecycleHandler",
    "Object",
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
