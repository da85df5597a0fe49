"""Lines and bars over time, as paths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aaiclick.server.ui.words import number

WIDTH = 640.0
HEIGHT = 190.0
LEFT = 40.0
BOTTOM = 22.0
TOP = 8.0
STACK = ("COMPLETED", "RUNNING", "PENDING", "CANCELLED", "FAILED")


@dataclass
class Line:
    look: str
    path: str
    area: str


@dataclass
class Chart:
    """A frame with ticks, and lines or bars in it."""

    lines: list[Line] = field(default_factory=list[Line])
    bars: list[tuple[float, float, float, float, str]] = field(
        default_factory=list[tuple[float, float, float, float, str]]
    )
    xs: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    ys: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    empty: bool = False


Series = Sequence[tuple[datetime, float | None]]


def lines(series: Mapping[str, Series], start: datetime, end: datetime, *, whole: bool = False) -> Chart:
    """One line per series; None breaks it. `whole`: there are no halves of what is counted."""
    most = max((value for points in series.values() for _, value in points if value is not None), default=0.0)
    top = nice(most, whole=whole)
    chart = _frame(start, end, top)
    chart.empty = not any(points for points in series.values())
    for look, points in series.items():
        chart.lines.append(_line(look, points, start, end, top))
    return chart


def _line(look: str, points: Series, start: datetime, end: datetime, top: float) -> Line:
    path: list[str] = []
    area: list[str] = []
    run: list[tuple[float, float]] = []

    def finish() -> None:
        if not run:
            return
        text = "L".join(f"{x:.1f} {y:.1f}" for x, y in run)
        path.append(f"M{text}")
        area.append(f"M{run[0][0]:.1f} {HEIGHT - BOTTOM:.1f}L{text}L{run[-1][0]:.1f} {HEIGHT - BOTTOM:.1f}Z")
        run.clear()

    for at, value in points:
        if value is None:
            finish()
        elif at >= start:
            run.append((_x(at, start, end), _y(value, top)))
    finish()
    return Line(look, "".join(path), "".join(area))


def bars(counts: Mapping[tuple[int, str], int], steps: int, start: datetime, end: datetime) -> Chart:
    """Stacked by status; `counts` is by step and status."""
    totals = [sum(counts.get((step, status), 0) for status in STACK) for step in range(steps)]
    top = nice(max(totals, default=0), whole=True)
    chart = _frame(start, end, top)
    chart.empty = not any(totals)
    wide = (WIDTH - LEFT) / steps
    for step in range(steps):
        below = 0.0
        for status in STACK:
            count = counts.get((step, status), 0)
            if count:
                y = _y(below + count, top)
                chart.bars.append((LEFT + step * wide + 0.5, y, max(1.0, wide - 1.2), _y(below, top) - y, status))
                below += count
    return chart


def spark(values: Sequence[float | None], width: float = 120.0, height: float = 26.0) -> tuple[str, str]:
    """(line, area) of a small drawing without a frame."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return "", ""
    top = max(max(known), 1.0)
    step = width / (len(values) - 1)
    points = [
        (index * step, height - 2 - value / top * (height - 5))
        for index, value in enumerate(values)
        if value is not None
    ]
    text = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f"M{text}", f"M{points[0][0]:.1f} {height}L{text}L{points[-1][0]:.1f} {height}Z"


def nice(value: float, *, whole: bool = False) -> float:
    """A round number that is no less; a whole one has a whole half."""
    if whole and value <= 10:
        return float(next(top for top in (2, 4, 6, 8, 10) if top >= value))
    if value <= 1:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def _frame(start: datetime, end: datetime, top: float) -> Chart:
    chart = Chart()
    chart.ys = [(_y(top * part / 4, top), number(top * part / 4)) for part in (0, 2, 4)]
    span = end - start
    for part in range(5):
        at = start + span * part / 4
        words = "now" if part == 4 else f"−{_span(span * (4 - part) / 4)}"
        chart.xs.append((_x(at, start, end), words))
    return chart


def _span(span: timedelta) -> str:
    minutes = span.total_seconds() / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def _x(at: datetime, start: datetime, end: datetime) -> float:
    return LEFT + (WIDTH - LEFT) * (at - start).total_seconds() / max(0.001, (end - start).total_seconds())


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - BOTTOM - TOP) * (1 - min(1.0, value / top))
