"""Functions over the rows of Objects, in chunks, by many workers: `map`, `reduce`, `foreach`.

    def score(rows: pa.Table) -> pa.Table: ...

    scored = map(score, prices)          # a handle: an argument of other tasks, or a task's return value
    job = await create_job("score", scored)

docs/operators.md has the rest.
"""

from __future__ import annotations

from aaiclick.operators.handles import CHUNK_ROWS, Handle, foreach, map, reduce  # noqa: A004

__all__ = ["CHUNK_ROWS", "Handle", "foreach", "map", "reduce"]
