"""Functions of expressions; importing this package fills the registry.

- `registry`: accepted types, result type and ClickHouse expression of each function
- `arithmetic`: arithmetic, bitwise, comparison and logical functions
- `mathematics`: mathematical functions and hashes
- `text`: string functions and regular expressions
- `temporal`: date and time functions
- `time_formats`: strftime and strptime
- `nested`: arrays, maps, structs and JSON text
- `nullable_structures`: functions of arrays, structs and maps that may be NULL
- `casts`: casts that keep the value
- `conditional`: conditional functions
- `aggregates`: aggregates and window functions

Next: aaiclick.data.compile.compiler, which calls the builders of SQL.
"""

from aaiclick.data.expressions.functions import (
    aggregates,
    arithmetic,
    casts,
    conditional,
    mathematics,
    nested,
    temporal,
    text,
    time_formats,
)
from aaiclick.data.expressions.functions.registry import (
    FUNCTIONS,
    Function,
    FunctionKind,
    NotDefinedError,
    unsupported_types_error,
)

__all__ = [
    "FUNCTIONS",
    "Function",
    "FunctionKind",
    "NotDefinedError",
    "aggregates",
    "arithmetic",
    "casts",
    "conditional",
    "mathematics",
    "nested",
    "temporal",
    "text",
    "time_formats",
    "unsupported_types_error",
]
