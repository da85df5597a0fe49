"""Functions of expressions; importing this package fills the registry.

- `registry`: accepted types, result type and ClickHouse expression of each function
- `arithmetic`: `+ - * /`, absolute value and sign
- `division`: `//` and `%`
- `powers`: `**`
- `comparisons`: comparisons, logic, bits and tests of values
- `mathematics`: mathematical functions and hashes
- `text`: string functions and regular expressions
- `temporal`: date and time functions
- `time_buckets`: intervals that contain a date or datetime
- `time_formats`: strftime and strptime
- `nested`: arrays, maps, structs and JSON text
- `nullable_structures`: functions of arrays, structs and maps that may be NULL
- `casts`: casts that keep the value
- `conditional`: conditional functions
- `aggregates`: aggregates
- `sketches`: the most frequent value, and approximate aggregates
- `windows`: window functions
- `durations`: functions of durations, and of dates and datetimes with them

Next: aaiclick.data.compile.compiler, which calls the builders of SQL.
"""

from aaiclick.data.expressions.functions import (
    aggregates,
    arithmetic,
    casts,
    comparisons,
    conditional,
    division,
    durations,
    mathematics,
    nested,
    powers,
    sketches,
    temporal,
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
    "arithmetic",
    "casts",
    "comparisons",
    "conditional",
    "division",
    "durations",
    "mathematics",
    "nested",
    "powers",
    "sketches",
    "temporal",
    "text",
    "time_buckets",
    "time_formats",
    "unsupported_types_error",
    "windows",
]
