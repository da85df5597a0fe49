"""Functions of the DAGs in the tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aaiclick.data import Object, col
from aaiclick.orchestration import emit_event


def fetch(event, days=2):
    """A few rows, or those of the payload."""
    payload = event.get("payload") or {}
    if "rows" in payload:
        return payload["rows"]
    return [{"id": n, "day": f"2026-01-0{1 + n % days}", "amount": 10 * n} for n in range(6)]


async def double(orders: Object) -> Object:
    return orders.select(col("id"), (col("amount") * 2).alias("doubled"))


CHAIN: dict[int, str] = {}
"""A growing source that may rewrite its history."""


def tip(position=None):
    where = max(CHAIN) if position is None else position
    return where, CHAIN.get(where)


def blocks(start, end):
    return [{"number": number, "mark": CHAIN[number]} for number in range(start, end + 1)]


def positions(event):
    return [{"position": position} for position in event["payload"]["rows"]]


def breaks(canary_days: Object) -> None:
    print("canary_log")
    raise ValueError("canary_error")


def fail_always(orders: Object) -> None:
    raise ValueError("always")


async def wait_for_file(event):
    """Rows of the payload, once the file that it names exists."""
    path = Path(event["payload"]["path"])
    while not path.exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.02)
    return event["payload"].get("rows", [])


async def emit_batches(event, batches=(), path=None, returned=None):
    """Emit batches, each under its cursor, then wait for a file."""
    payload = {"batches": batches, "path": path, "returned": returned} | (event.get("payload") or {})
    for cursor, rows in payload["batches"]:
        await emit_event(rows, cursor=cursor)
    if payload["path"] is not None:
        await wait_for_file({"payload": payload})
    return payload["returned"]


async def emit_from_reactive(raw: Object) -> None:
    await emit_event([{"id": 1}], cursor="1")
