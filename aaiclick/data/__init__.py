"""Objects and Views: lazy tables and columns in ClickHouse.

    async with DataContext():
        prices = await create_object_from_value({"item": ["pen", "ink"], "price": [2, 7]})
        expensive = prices.filter(col("price") > 3)
        print(await expensive.data())

Names are imported lazily, so that importing the package does not load Arrow and sqlglot.

From a value to a result:

- `context`: DataContext: a ClickHouse connection that owns the Objects created in it
- `create`: creates Objects from Python values, batches and queries; named Objects
- `types`: ClickHouse data types: parsing, formatting and promotion
- `io`: conversion of values, Arrow, files, URLs and S3, into ClickHouse and back
- `object`: Object: lazy rows in ClickHouse
- `view`: View: a range or filtered part of a table's rows, without a copy
- `expressions`: expressions over columns
- `relational_methods`: methods of Object: select, filter, sort, group
- `join_methods`: methods of Object: joins
- `reshape_methods`: methods of Object: pivot, nested values, rows of several Objects
- `table_base`: arguments of these methods
- `argument_checks`: checks of the types of arguments
- `grouping`: GroupBy: rows grouped by keys, before aggregation
- `time_groups`: TimeGroupBy: rows grouped by intervals of time
- `stats`: summary statistics of an Object
- `compile`: compiles a relation to a SELECT statement
- `runtime`: ClickHouse client, execution of statements, tables of Objects
- `fetch_methods`: methods of Object that read: values, Arrow, data frames, batches, files
- `expectations`: data tests of Objects
- `json_results`: results of tasks as JSON values
- `method_hints`: hints for names of methods that polars, pandas and SQL have
- `pending_result`: coroutines that explain a forgotten `await`
- `render`: rows as a rich table or an HTML table
- `plain_value_preview`: previews of plain results, without Arrow
- `result_preview`: previews of task results
- `progress`: progress of long queries
- `sync`: synchronous version of this package, for notebooks and scripts
- `errors`: errors of the data API

Next: aaiclick.data.io for values, aaiclick.data.expressions for queries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aaiclick.missing_modules import find_remedy

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext, get_data_context
    from aaiclick.data.create import (
        create_object_from_query,
        create_object_from_value,
        delete_object,
        insert,
        list_objects,
        open_object,
    )
    from aaiclick.data.expectations import expect
    from aaiclick.data.expressions.column import Column
    from aaiclick.data.expressions.constructors import (
        all_columns,
        array,
        case,
        coalesce,
        col,
        duration,
        exclude,
        if_else,
        length,
        lit,
        of_type,
        row_index,
        row_number,
    )
    from aaiclick.data.grouping import GroupBy
    from aaiclick.data.io.csv_dialect import CsvOptions
    from aaiclick.data.io.ingest import FilePreview, create_object_from_file, preview_file
    from aaiclick.data.io.s3_client import S3Access
    from aaiclick.data.object import Object
    from aaiclick.data.runtime.lifecycle import LifecycleHandler, LocalLifecycleHandler
    from aaiclick.data.view import View, is_reference, open_reference

_EXPORTS = {
    "expressions.column": ("Column",),
    "expressions.constructors": (
        "all_columns",
        "array",
        "case",
        "coalesce",
        "col",
        "duration",
        "exclude",
        "if_else",
        "length",
        "lit",
        "of_type",
        "row_index",
        "row_number",
    ),
    "expectations": ("expect",),
    "context": ("DataContext", "get_data_context"),
    "create": (
        "create_object_from_query",
        "create_object_from_value",
        "delete_object",
        "insert",
        "list_objects",
        "open_object",
    ),
    "io.csv_dialect": ("CsvOptions",),
    "io.ingest": ("FilePreview", "create_object_from_file", "preview_file"),
    "runtime.lifecycle": ("LifecycleHandler", "LocalLifecycleHandler"),
    "object": ("Object",),
    "io.s3_client": ("S3Access",),
    "grouping": ("GroupBy",),
    "view": ("View", "is_reference", "open_reference"),
}
_MODULE_BY_NAME = {name: home for home, names in _EXPORTS.items() for name in names}

__all__ = [
    "Column",
    "CsvOptions",
    "DataContext",
    "FilePreview",
    "GroupBy",
    "LifecycleHandler",
    "LocalLifecycleHandler",
    "Object",
    "S3Access",
    "View",
    "all_columns",
    "array",
    "case",
    "coalesce",
    "col",
    "create_object_from_file",
    "create_object_from_query",
    "create_object_from_value",
    "delete_object",
    "duration",
    "exclude",
    "expect",
    "get_data_context",
    "if_else",
    "insert",
    "is_reference",
    "length",
    "list_objects",
    "lit",
    "of_type",
    "open_object",
    "open_reference",
    "preview_file",
    "row_index",
    "row_number",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
    except ModuleNotFoundError as error:
        error.add_note(find_remedy(error))
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
