"""Functions of expressions; importing this package fills the registry.

- `registry`: accepted types, result type and ClickHouse expression of each function
- `arithmetic`: `+ - * /`, absolute value and sign
- `division`: `//` and `%`
- `powers`: `**`
- `comparisons`: comparisons, logic, bits and tests of values
- `mathematics`: mathematical functions and hashes
- `text`: string functions and regular expressions
- `dates_and_times`: date and time functions
- `time_buckets`: intervals that contain a date or datetime
- `time_formats`: strftime and strptime
- `nested`: arrays, maps, structs and JSON text
- `nullable_structures`: functions of arrays, structs and maps that may be NULL
- `casts`: casts that keep the value
- `conditional`: conditional functions
- `aggregates`: aggregates
- `approximate_aggregates`: the most frequent value, and approximate aggregates
- `windows`: window functions
- `durations`: functions of durations, and of dates and datetimes with them

Next: aaiclick.data.compile.relation_compiler, which calls the builders of SQL.
"""

from aaiclick.data.expressions.functions import (
    aggregates,
    approximate_aggregates,
    arithmetic,
    casts,
    comparisons,
    conditional,
    dates_and_times,
    division,
    durations,
    mathematics,
    nested,
    powers,
    text,
    time_buckets,
    time_formats,
    windows,
)
from aaiclick.data.expressions.functions.registry import (
    FUNCTIONS,
    Function,
    FunctionKind,
    NotDefinedError,
    unsupported_types_error,
)

durations.extend_functions()

__all__ = [
    "FUNCTIONS",
    "Function",
    "FunctionKind",
    "NotDefinedError",
    "aggregates",
    "approximate_aggregates",
    "arithmetic",
    "casts",
    "comparisons",
    "conditional",
    "dates_and_times",
    "division",
    "durations",
    "mathematics",
    "nested",
    "powers",
    "text",
    "time_buckets",
    "time_formats",
    "unsupported_types_error",
    "windows",
]
