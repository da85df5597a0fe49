"""Query parameters of lists: `limit` and `cursor`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

MAX_PAGE_SIZE = 1_000

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE, description="Maximum number of items")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the previous page")]
