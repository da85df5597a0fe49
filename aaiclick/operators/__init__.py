"""Operators `map`, `reduce` and `foreach`: callbacks over chunks of an Object, run in parallel by workers.

    def score(rows: pa.Table) -> pa.Table: ...

    scored = map(score, prices)          # a handle: an argument of other tasks, or a task's return value
    job = await create_job("score", scored)

See docs/operators.md.

- `map_reduce_foreach`: the operators; each returns a Handle, a task that creates the chunk tasks
- `callback_signatures`: signatures of callbacks: which parameters take chunks, and in which form
- `chunk_tasks`: tasks per chunk, and the task that collects their results

Next: aaiclick.orchestration, which submits them; aaiclick.data.runtime.parallel_write stores the rows.
"""

from __future__ import annotations

from aaiclick.operators.map_reduce_foreach import CHUNK_ROWS, Handle, foreach, map, reduce  # noqa: A004

__all__ = ["CHUNK_ROWS", "Handle", "foreach", "map", "reduce"]
