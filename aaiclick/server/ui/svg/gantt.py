"""When each part of a job waited and worked, one line per unit, the critical path marked."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aaiclick.server.ui.svg.fold import Folded, Unit, critical_path, predecessors
from aaiclick.server.ui.svg.graph import shortened
from aaiclick.server.ui.words import duration, task_name

WIDTH = 1000.0
LABEL = 190.0
LINE = 22.0
TOP = 22.0
MOST = 150


@dataclass
class Bar:
    id: int
    name: str
    y: float
    wait_x: float
    wait_width: float
    run_x: float
    run_width: float
    look: str
    critical: bool
    words: str


@dataclass
class Chart:
    height: float = 0.0
    bars: list[Bar] = field(default_factory=list[Bar])
    ticks: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    hidden: int = 0


def draw(folded: Folded, now: datetime) -> Chart:
    """Units that have begun, in the order in which they did; the rest is counted."""
    begun = sorted(
        (unit for unit in folded.units.values() if unit.started_at is not None),
        key=lambda unit: (unit.started_at or now, unit.id),
    )
    if not begun:
        return Chart(hidden=len(folded.units))
    first = min(unit.created_at for unit in begun)
    last = max(unit.completed_at or now for unit in begun)
    whole = max((last - first).total_seconds(), 0.001)
    scale = (WIDTH - LABEL) / whole
    before = predecessors(folded)
    critical = set(critical_path(folded, before))
    shown = begun[:MOST]
    chart = Chart(TOP + LINE * len(shown) + 4, hidden=len(folded.units) - len(shown))
    for index, unit in enumerate(shown):
        ends = [other.completed_at for other in (folded.units.get(each) for each in before[unit.id]) if other]
        ready = max((end for end in ends if end is not None), default=unit.created_at)
        chart.bars.append(_bar(unit, index, first, scale, now, unit.id in critical, max(ready, unit.created_at)))
    step = _step(whole)
    chart.ticks = [(LABEL + at * step * scale, duration(at * step)) for at in range(int(whole / step * 0.97) + 1)]
    return chart


def _bar(unit: Unit, index: int, first: datetime, scale: float, now: datetime, critical: bool, ready: datetime) -> Bar:
    began = unit.started_at or now
    ready = min(ready, began)
    ended = unit.completed_at or (began if unit.look == "retrying" else now)  # which waits, and does not work

    def x(at: datetime) -> float:
        return LABEL + max(0.0, (at - first).total_seconds()) * scale

    name = task_name(unit.name)
    if unit.total > 1:
        name = f"{name} ×{unit.total:,}"
    words = f"{name}: waited {duration(began - ready)}, worked {duration(max(ended - began, timedelta()))}"
    return Bar(
        unit.id, shortened(name, 26), TOP + index * LINE, x(ready),
        max(0.0, x(began) - x(ready)), x(began), max(2.0, x(ended) - x(began)), unit.look, critical, words,
    )  # fmt: skip


def _step(seconds: float) -> float:
    """A round number of seconds that gives about six ticks."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400):
        if seconds / step <= 7:
            return float(step)
    return seconds / 6
