"""Line charts, stacked bar charts and sparklines over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aaiclick.server.ui.template_filters import format_number

WIDTH = 640.0
HEIGHT = 190.0
LEFT = 40.0
BOTTOM = 22.0
TOP = 8.0
STACKED_STATES = ("COMPLETED", "RUNNING", "PENDING", "CANCELLED", "FAILED")


@dataclass
class Line:
    css_class: str
    path: str
    area: str


@dataclass
class Chart:
    """Axis ticks with lines or bars."""

    lines: list[Line] = field(default_factory=list[Line])
    bars: list[tuple[float, float, float, float, str]] = field(
        default_factory=list[tuple[float, float, float, float, str]]
    )
    xs: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    ys: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    empty: bool = False


Series = Sequence[tuple[datetime, float | None]]


def line_chart(series: Mapping[str, Series], start: datetime, end: datetime, *, whole: bool = False) -> Chart:
    """Draw one line per series; None interrupts it. `whole` restricts the axis to whole numbers."""
    max_value = max((value for points in series.values() for _, value in points if value is not None), default=0.0)
    top = round_up_axis(max_value, whole=whole)
    chart = _empty_chart(start, end, top)
    chart.empty = not any(points for points in series.values())
    for css_class, points in series.items():
        chart.lines.append(_draw_line(css_class, points, start, end, top))
    return chart


def _draw_line(css_class: str, points: Series, start: datetime, end: datetime, top: float) -> Line:
    path: list[str] = []
    area: list[str] = []
    segment: list[tuple[float, float]] = []

    def end_segment() -> None:
        if not segment:
            return
        text = "L".join(f"{x:.1f} {y:.1f}" for x, y in segment)
        path.append(f"M{text}")
        area.append(f"M{segment[0][0]:.1f} {HEIGHT - BOTTOM:.1f}L{text}L{segment[-1][0]:.1f} {HEIGHT - BOTTOM:.1f}Z")
        segment.clear()

    for at, value in points:
        if value is None:
            end_segment()
        elif at >= start:
            segment.append((_x_position(at, start, end), _y_position(value, top)))
    end_segment()
    return Line(css_class, "".join(path), "".join(area))


def bar_chart(counts: Mapping[tuple[int, str], int], steps: int, start: datetime, end: datetime) -> Chart:
    """Draw bars stacked by status; `counts` is keyed by step and status."""
    totals = [sum(counts.get((step, status), 0) for status in STACKED_STATES) for step in range(steps)]
    top = round_up_axis(max(totals, default=0), whole=True)
    chart = _empty_chart(start, end, top)
    chart.empty = not any(totals)
    step_width = (WIDTH - LEFT) / steps
    for step in range(steps):
        stacked = 0.0
        for status in STACKED_STATES:
            count = counts.get((step, status), 0)
            if count:
                y = _y_position(stacked + count, top)
                chart.bars.append(
                    (
                        LEFT + step * step_width + 0.5,
                        y,
                        max(1.0, step_width - 1.2),
                        _y_position(stacked, top) - y,
                        status,
                    )
                )
                stacked += count
    return chart


def sparkline(values: Sequence[float | None], width: float = 120.0, height: float = 26.0) -> tuple[str, str]:
    """Return the SVG paths (line, area) of a sparkline."""
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return "", ""
    top = max(max(present), 1.0)
    step = width / (len(values) - 1)
    points = [
        (index * step, height - 2 - value / top * (height - 5))
        for index, value in enumerate(values)
        if value is not None
    ]
    text = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f"M{text}", f"M{points[0][0]:.1f} {height}L{text}L{points[-1][0]:.1f} {height}Z"


def round_up_axis(value: float, *, whole: bool = False) -> float:
    """Round up to a value for the axis; with `whole`, half of it is a whole number too."""
    if whole and value <= 10:
        return float(next(top for top in (2, 4, 6, 8, 10) if top >= value))
    if value <= 1:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def _empty_chart(start: datetime, end: datetime, top: float) -> Chart:
    chart = Chart()
    chart.ys = [(_y_position(top * part / 4, top), format_number(top * part / 4)) for part in (0, 2, 4)]
    span = end - start
    for part in range(5):
        at = start + span * part / 4
        label = "now" if part == 4 else f"−{_format_span(span * (4 - part) / 4)}"
        chart.xs.append((_x_position(at, start, end), label))
    return chart


def _format_span(span: timedelta) -> str:
    minutes = span.total_seconds() / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def _x_position(at: datetime, start: datetime, end: datetime) -> float:
    return LEFT + (WIDTH - LEFT) * (at - start).total_seconds() / max(0.001, (end - start).total_seconds())


def _y_position(value: float, top: float) -> float:
    return TOP + (HEIGHT - BOTTOM - TOP) * (1 - min(1.0, value / top))
