"""The page that is left open all day: what runs, what waits, what fails, and how that was in the last hour or day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from aaiclick.server.permissions import Permission
from aaiclick.server.ui.history import rates
from aaiclick.server.ui.looking import looking
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.server.ui.svg import charts
from aaiclick.snowflake import EPOCH_MS, TIMESTAMP_SHIFT
from aaiclick.store import reads, ui_reads

pages = Pages()

SPANS = {"hour": (timedelta(hours=1), 60), "day": (timedelta(days=1), 96)}
LISTED = 8


@pages.get("/", Permission.READER)
async def show(visit: Visit) -> Response:
    chosen = visit.query("span") if visit.query("span") in SPANS else "hour"
    span, steps = SPANS[chosen]
    org, kept = visit.who.org_id, visit.house.kept
    samples = await visit.house.history.of(org, span)
    end = datetime.now(UTC)
    start = end - span
    async with looking(visit.call) as connection:
        now = await kept.get(("now", org), lambda: ui_reads.figures_now(connection, org))
        step = int(span.total_seconds() * 1000 / steps) << TIMESTAMP_SHIFT
        recent = await kept.get(
            ("recent", org, chosen), lambda: ui_reads.recent_jobs(connection, org, _first_id(start), step), seconds=2
        )
        speed = await kept.get(("speed", org), lambda: ui_reads.job_speed(connection, org), seconds=2)
        failed = await kept.get(
            ("failed", org),
            lambda: ui_reads.jobs_gone_wrong(connection, org, status="FAILED", before=reads.LAST_ID, limit=LISTED),
        )
        running = await ui_reads.unfinished_jobs(
            connection, org, status="RUNNING", words=None, before=reads.LAST_ID, limit=LISTED
        )
    counts = {(row["step"], row["status"]): row["count"] for row in recent}
    seconds = rates(samples)
    last = samples[-60:]
    return visit.page(
        "overview.html",
        figures=now,
        bound=ui_reads.COUNTED,
        oldest=max(0.0, (now["now"] - now["oldest_at"]).total_seconds()) if now["oldest_at"] else None,
        rate=seconds[-1][1] if seconds and end - seconds[-1][0] < timedelta(minutes=2) else None,
        operator=visit.who.is_operator,
        sparks={
            "ready": charts.spark([sample.ready for sample in last]),
            "running": charts.spark([sample.running for sample in last]),
            "oldest": charts.spark([sample.oldest_seconds for sample in last]),
            "dead": charts.spark([sample.dead for sample in last]),
            "workers": charts.spark([sample.workers for sample in last]),
            "rate": charts.spark([value for _, value in seconds[-60:]]),
        },
        throughput=charts.lines({"c2": seconds}, start, end),
        depth=charts.lines(
            {
                "c1": [(sample.at, float(sample.ready)) for sample in samples],
                "c2": [(sample.at, float(sample.running)) for sample in samples],
            },
            start,
            end,
            whole=True,
        ),
        by_time=charts.bars(counts, steps, start, end),
        speed=speed,
        failed=failed,
        running=running,
        span=chosen,
        now=end,
    )


def _first_id(at: datetime) -> int:
    """The least id that can have been made at a moment."""
    return max(0, int(at.timestamp() * 1000) - EPOCH_MS) << TIMESTAMP_SHIFT
