"""Compare the CPU time of ClickHouse for Objects and for hand-written SQL, which load on the machine hardly changes."""

from __future__ import annotations

import asyncio
import json
import math
import re
import statistics
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal

import pyarrow as pa

from aaiclick.data import get_data_context
from aaiclick.data.compile.relation_nodes import Scan
from aaiclick.data.object import Object

CPU_COUNTER = "SELECT value FROM system.events WHERE event = 'OSCPUVirtualTimeMicroseconds'"
SETTLE_SECONDS = 0.1
"""Threads of a query add their CPU time to the counter when they end, shortly after the answer."""

Work = Callable[[], Awaitable[pa.Table]]


def table_name(obj: Object) -> str:
    relation = obj.relation
    assert isinstance(relation, Scan)
    return relation.table.name


def use_tables(text: str, objects: Mapping[str, Object]) -> str:
    """Replace the tables after FROM and JOIN by those of the Objects."""

    def replace_table(match: re.Match[str]) -> str:
        keyword, name, alias = match.groups()
        return f"{keyword} `{table_name(objects[name])}`{alias or f' AS {name}'}"

    return re.sub(rf"\b(FROM|JOIN) ({'|'.join(objects)})\b( AS \w+)?", replace_table, text)


SQL_SETTINGS: tuple[dict[str, object], ...] = (
    {},
    {"query_plan_optimize_join_order_limit": 0},
    {"query_plan_optimize_join_order_limit": 0, "join_algorithm": "hash"},
)
"""Hand-written SQL runs with ClickHouse's own join order and with the order of its text; the faster one counts."""


async def run_sql(text: str, settings: Mapping[str, object]) -> pa.Table:
    raw = get_data_context().client._raw
    return await raw.query_arrow(text, settings={"session_timezone": "UTC", **settings}, use_strings=True)


async def choose_settings(text: str) -> Mapping[str, object]:
    """Return the settings with which the hand-written SQL needs the least CPU time."""
    times = [
        min([(await measure_cpu(lambda chosen=chosen: run_sql(text, chosen)))[1] for _ in range(2)])
        for chosen in SQL_SETTINGS
    ]
    return SQL_SETTINGS[times.index(min(times))]


async def _read_counter() -> int:
    await asyncio.sleep(SETTLE_SECONDS)
    return (await get_data_context().client.read_text(CPU_COUNTER)).column(0)[0].as_py()


async def measure_cpu(work: Work) -> tuple[pa.Table, float]:
    """Return the result and the CPU seconds of all threads of the server."""
    before = await _read_counter()
    rows = await work()
    return rows, (await _read_counter() - before) / 1e6


def comparable_rows(rows: pa.Table) -> list[tuple]:
    """Return rows as tuples of numbers and texts, sorted, with 9 significant digits."""

    def comparable(value):
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return str(value)
        return f"{float(value):.9g}" if math.isfinite(value) else str(float(value))

    columns = [[comparable(value) for value in column.to_pylist()] for column in rows.columns]
    return sorted(zip(*columns, strict=True))


class Ratios:
    """Interleaved measurements of pairs, and their ratios."""

    def __init__(self, repeat: int) -> None:
        self.repeat = repeat
        self.ratios: dict[str, float] = {}
        self.different: list[str] = []

    async def compare(self, task: str, objects: Work, text: str) -> None:
        """Run both once to compare their rows, then measure; the smallest CPU time of each counts."""
        settings = await choose_settings(text)
        pair: dict[str, Work] = {"objects": objects, "sql": lambda: run_sql(text, settings)}
        left, right = [comparable_rows(await work()) for work in pair.values()]
        if left != right:
            self.different.append(task)
            rows = next((both for both in zip(left, right, strict=False) if both[0] != both[1]), None)
            print(json.dumps({"task": task, "rows": [len(left), len(right)], "different": rows}), flush=True)
        times: dict[str, list[float]] = {name: [] for name in pair}
        for _ in range(self.repeat):
            for name, work in pair.items():
                times[name].append((await measure_cpu(work))[1])
        best = {name: min(values) for name, values in times.items()}
        self.ratios[task] = best["objects"] / best["sql"]
        line = {"task": task, "rows": len(left), **{f"{name}_cpu": round(value, 4) for name, value in best.items()}}
        print(json.dumps({**line, "ratio": round(self.ratios[task], 3)}), flush=True)

    def summary(self) -> dict[str, object]:
        worst = max(self.ratios, key=lambda task: self.ratios[task])
        return {
            "tasks": len(self.ratios),
            "equal": len(self.ratios) - len(self.different),
            "geometric_mean": round(statistics.geometric_mean(self.ratios.values()), 3),
            "worst": [worst, round(self.ratios[worst], 3)],
        }
