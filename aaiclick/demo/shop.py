"""A shop: generated orders, invoices of its customers, and a report."""

from __future__ import annotations

import asyncio
import random
from datetime import date, timedelta

from aaiclick.data import Object, col, create_object_from_value
from aaiclick.orchestration import job, task

CUSTOMERS = [f"customer {number:02}" for number in range(1, 25)]
FIRST_DAY = date(2026, 11, 1)


def fetch(orders: int = 2_000, days: int = 7) -> list[dict[str, object]]:
    """Generate orders, the same at each call: the source of `shop.yaml`."""
    chance = random.Random(7)  # noqa: S311  (example data)
    return [
        {
            "order_id": number,
            "customer": chance.choice(CUSTOMERS),
            "day": FIRST_DAY + timedelta(days=chance.randrange(days)),
            "euros": round(chance.uniform(5, 120), 2),
            "paid": chance.random() < 0.9,
        }
        for number in range(orders)
    ]


@task
async def load() -> Object:
    """Store the orders in ClickHouse."""
    orders = fetch()
    columns = {name: [order[name] for order in orders] for name in ("customer", "euros", "paid")}
    return await create_object_from_value(columns)


@task
async def invoice(orders: Object, customer: str, seconds: float) -> float:
    """Sum what a customer owes; the pause stands for a slow mail server."""
    owed = await orders.filter((col("customer") == customer) & ~col("paid"))["euros"].sum().data()
    await asyncio.sleep(seconds)
    print(f"{customer} owes {owed:.2f} EUR")  # noqa: T201  (goes to the log of the task)
    return owed


@task
def report(owed: list[float]) -> str:
    """Sum all invoices."""
    return f"{len(owed)} invoices, {sum(owed):.2f} EUR"


@job
def invoices(seconds: float = 0.3) -> None:
    """Send one invoice to each customer, each in its own task."""
    orders = load()
    report([invoice(orders, customer, seconds) for customer in CUSTOMERS])
