"""Task that selects one item of a result: `a, b = split()` in a @job makes one for each item of the tuple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from aaiclick.data import Object


async def select_item(values: object, index: int) -> object:
    """Task: one item of a result. A table is a list of rows."""
    if isinstance(values, Object):
        values = await (values.rows() if values.shape in ("table", "record") else values.data())
    return cast("Sequence[object]", values)[index]
