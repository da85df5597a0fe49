"""The Python functions of `orders.yaml`: generated orders, and a score for each."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from aaiclick.data import Object, col, if_else

CUSTOMERS = ["Ada", "Ben", "Cleo", "Dora", "Emil"]


def fetch(event: dict[str, Any], orders: int = 200, days: int = 7) -> list[dict[str, Any]]:
    """Generate the orders of the last days; the result is the same within an hour."""
    nominal = event.get("nominal")
    now = datetime.fromisoformat(nominal) if nominal else datetime.now(UTC)
    chance = random.Random(now.strftime("%Y-%m-%d %H"))
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [
        {
            "order_id": number,
            "customer": chance.choice(CUSTOMERS),
            "placed_at": (midnight - timedelta(hours=chance.randrange(24 * days))).replace(tzinfo=None),
            "amount": round(chance.uniform(5, 120), 2),
            "rate": chance.choice([1.0, 0.92, 1.17]),
            "paid": chance.random() < 0.9,
        }
        for number in range(orders)
    ]


def score(orders: Object) -> Object:
    """Score orders by amount, with a higher weight for regular customers."""
    weight = if_else(col("customer").isin(CUSTOMERS[:3]), 2, 1)
    return orders.select(col("order_id"), (col("euros") * weight / 100).alias("score"))
