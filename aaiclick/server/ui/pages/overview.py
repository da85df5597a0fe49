"""Overview page: current metrics, charts of the last hour or day, running and failed jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from aaiclick.catalog.freshness_forecast import list_forecasts
from aaiclick.operations.actor import Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.server.ui.metrics_sampler import Sample, completion_rates
from aaiclick.server.ui.read_transaction import read_transaction
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.server.ui.svg import charts
from aaiclick.snowflake import EPOCH_MS, TIMESTAMP_SHIFT
from aaiclick.store.catalog import data_test_results
from aaiclick.store.engine import queries
from aaiclick.store.ui import job_queries

pages = Pages()

SPANS = {"hour": (timedelta(hours=1), 60), "day": (timedelta(days=1), 96)}
MAX_JOBS = 8
SPARKLINE_SAMPLES = 60


@pages.get("/", Permission.READER)
async def show_overview(page: PageRequest) -> Response:
    span_name = page.query_param("span") if page.query_param("span") in SPANS else "hour"
    span, steps = SPANS[span_name]
    org, cache = page.caller.org_id, page.ui_state.cache
    samples = await page.ui_state.history.get_samples(org, span)
    end = datetime.now(UTC)
    start = end - span
    async with read_transaction(page.call) as connection:
        now = await cache.get(("now", org), lambda: job_queries.load_org_counts(connection, org))
        step = int(span.total_seconds() * 1000 / steps) << TIMESTAMP_SHIFT
        recent = await cache.get(
            ("recent", org, span_name),
            lambda: job_queries.count_recent_jobs(connection, org, _first_id(start), step),
            min_ttl_seconds=2,
        )
        speed = await cache.get(
            ("speed", org), lambda: job_queries.load_job_latencies(connection, org), min_ttl_seconds=2
        )
        failed = await cache.get(
            ("failed", org),
            lambda: job_queries.list_unsuccessful_jobs(
                connection, org, status="FAILED", before=queries.LAST_ID, limit=MAX_JOBS
            ),
        )
        reader = await dataset_reader(connection, page.caller)
        tests = await data_test_results.list_latest_tests(connection, reader, failed=True, limit=MAX_JOBS)
        roles = None if reader.roles is None else tuple(sorted(reader.roles))
        late = await cache.get(
            ("late", org, roles),
            lambda: list_forecasts(connection, reader, late=True, limit=MAX_JOBS),
            min_ttl_seconds=2,
        )
        running = await job_queries.list_unfinished_jobs(
            connection, org, status="RUNNING", search=None, before=queries.LAST_ID, limit=MAX_JOBS
        )
    counts = {(row["step"], row["status"]): row["count"] for row in recent}
    rates = completion_rates(samples)
    return page.render(
        "overview.html",
        counts=now,
        max_count=job_queries.MAX_COUNT,
        oldest=max(0.0, (now["now"] - now["oldest_at"]).total_seconds()) if now["oldest_at"] else None,
        rate=rates[-1][1] if rates and end - rates[-1][0] < timedelta(minutes=2) else None,
        operator=page.caller.is_operator,
        sparks=_draw_sparklines(samples, rates),
        throughput=charts.line_chart({"c2": rates}, start, end),
        depth=charts.line_chart(_queue_depths(samples), start, end, whole=True),
        by_time=charts.bar_chart(counts, steps, start, end),
        speed=speed,
        failed=failed,
        tests=tests,
        late=late,
        running=running,
        span=span_name,
        now=end,
    )


def _draw_sparklines(samples: Sequence[Sample], rates: charts.Series) -> dict[str, tuple[str, str]]:
    last = samples[-SPARKLINE_SAMPLES:]
    return {
        "ready": charts.sparkline([sample.ready for sample in last]),
        "running": charts.sparkline([sample.running for sample in last]),
        "oldest": charts.sparkline([sample.oldest_seconds for sample in last]),
        "dead": charts.sparkline([sample.dead for sample in last]),
        "workers": charts.sparkline([sample.workers for sample in last]),
        "rate": charts.sparkline([value for _, value in rates[-SPARKLINE_SAMPLES:]]),
    }


def _queue_depths(samples: Sequence[Sample]) -> dict[str, charts.Series]:
    """Numbers of ready and of running tasks, by the class of their line."""
    return {
        "c1": [(sample.at, float(sample.ready)) for sample in samples],
        "c2": [(sample.at, float(sample.running)) for sample in samples],
    }


def _first_id(at: datetime) -> int:
    """Return the smallest Snowflake id of a time."""
    return max(0, int(at.timestamp() * 1000) - EPOCH_MS) << TIMESTAMP_SHIFT
