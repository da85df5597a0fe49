"""Gantt chart of a job: waiting and running time per unit, with the critical path."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aaiclick.server.ui.svg.collapse_tasks import CollapsedJob, GraphUnit, find_critical_path, find_predecessors
from aaiclick.server.ui.svg.job_graph import shorten_text
from aaiclick.server.ui.template_filters import format_duration, task_name

WIDTH = 1000.0
LABEL = 190.0
LINE = 22.0
TOP = 22.0
MAX_BARS = 150


@dataclass
class GanttBar:
    id: int
    name: str
    y: float
    wait_x: float
    wait_width: float
    run_x: float
    run_width: float
    css_class: str
    critical: bool
    title: str


@dataclass
class GanttChart:
    height: float = 0.0
    bars: list[GanttBar] = field(default_factory=list[GanttBar])
    ticks: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    hidden: int = 0


def draw_gantt(job: CollapsedJob, now: datetime) -> GanttChart:
    """Draw the started units in order of their start; the others are only counted."""
    started_units = sorted(
        (unit for unit in job.units.values() if unit.started_at is not None),
        key=lambda unit: (unit.started_at or now, unit.id),
    )
    if not started_units:
        return GanttChart(hidden=len(job.units))
    first = min(unit.created_at for unit in started_units)
    last = max(unit.completed_at or now for unit in started_units)
    total_seconds = max((last - first).total_seconds(), 0.001)
    scale = (WIDTH - LABEL) / total_seconds
    predecessor_ids = find_predecessors(job)
    critical = set(find_critical_path(job, predecessor_ids))
    shown = started_units[:MAX_BARS]
    chart = GanttChart(TOP + LINE * len(shown) + 4, hidden=len(job.units) - len(shown))
    for index, unit in enumerate(shown):
        ends = [
            other.completed_at for other in (job.units.get(unit_id) for unit_id in predecessor_ids[unit.id]) if other
        ]
        ready = max((end for end in ends if end is not None), default=unit.created_at)
        chart.bars.append(_draw_bar(unit, index, first, scale, now, unit.id in critical, max(ready, unit.created_at)))
    step = _tick_interval(total_seconds)
    chart.ticks = [
        (LABEL + at * step * scale, format_duration(at * step)) for at in range(int(total_seconds / step * 0.97) + 1)
    ]
    return chart


def _draw_bar(
    unit: GraphUnit, index: int, first: datetime, scale: float, now: datetime, critical: bool, ready: datetime
) -> GanttBar:
    started_at = unit.started_at or now
    ready = min(ready, started_at)
    ended_at = unit.completed_at or (started_at if unit.css_class == "retrying" else now)  # a retrying task waits

    def x_position(at: datetime) -> float:
        return LABEL + max(0.0, (at - first).total_seconds()) * scale

    name = task_name(unit.name)
    if unit.total > 1:
        name = f"{name} ×{unit.total:,}"
    waited, ran = started_at - ready, max(ended_at - started_at, timedelta())
    title = f"{name}: waited {format_duration(waited)}, ran {format_duration(ran)}"
    wait_x, run_x = x_position(ready), x_position(started_at)
    return GanttBar(
        unit.id, shorten_text(name, 26), TOP + index * LINE, wait_x, max(0.0, run_x - wait_x),
        run_x, max(2.0, x_position(ended_at) - run_x), unit.css_class, critical, title,
    )  # fmt: skip


def _tick_interval(seconds: float) -> float:
    """Return a round number of seconds that gives about six ticks."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400):
        if seconds / step <= 7:
            return float(step)
    return seconds / 6
