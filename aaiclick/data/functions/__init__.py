"""Everything an expression can call; importing this fills the table."""

from aaiclick.data.functions import (
    aggregates,
    arithmetic,
    conditional,
    mathematics,
    nested,
    temporal,
    text,
)
from aaiclick.data.functions.registry import (
    FUNCTIONS,
    Function,
    Kind,
    NotDefinedError,
    lookup,
    unsupported,
)

__all__ = [
    "FUNCTIONS",
    "Function",
    "Kind",
    "NotDefinedError",
    "aggregates",
    "arithmetic",
    "conditional",
    "lookup",
    "mathematics",
    "nested",
    "temporal",
    "text",
    "unsupported",
]
