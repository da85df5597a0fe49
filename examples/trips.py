"""A job with three steps: load, one task per city, report. Run it with `aaiclick run examples.trips.fares`."""

from __future__ import annotations

from aaiclick.data import Object, col, create_object_from_value
from aaiclick.orchestration import job, task

CITIES = ["Ambon", "Bari", "Cork", "Dakar", "Essen"]


@task
async def load(rows: int) -> Object:
    """Generate a million trips."""
    print(f"loading {rows:,} trips")
    return await create_object_from_value(
        {
            "city": [CITIES[number % len(CITIES)] for number in range(rows)],
            "km": [number % (97 + number % len(CITIES)) for number in range(rows)],
        }
    )


@task
async def mean_fare(trips: Object, city: str) -> float:
    """Compute the mean fare of one city, as one ClickHouse query."""
    mean = await trips.filter(col("city") == city)["km"].mean().data()
    print(f"{city}: {mean:.2f} km on average")
    return mean * 3 + 2


@task
async def report(fares: list[Object]) -> Object:
    """Return one row per city, highest fare first."""
    table = await create_object_from_value({"city": CITIES, "mean_fare": [await fare.data() for fare in fares]})
    return await table.sort("mean_fare", descending=True)


@job
def fares(rows: int = 1_000_000) -> None:
    """Load the trips, compute each city in its own task, and report."""
    trips = load(rows)
    per_city = [mean_fare(trips, city) for city in CITIES]
    report(per_city)
