"""Conversion of result values to JSON-compatible values."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID


def to_json(value: object) -> Any:
    """Convert a value to JSON: values without an exact JSON form become strings, NaN and infinity become null."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) < 2**53 else str(value)
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID() | timedelta():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(key): to_json(item) for key, item in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [to_json(item) for item in cast("list[Any]", value)]
        case _:
            return str(value)
