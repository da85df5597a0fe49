"""Progress bars of a job on a terminal: tasks done, rate, and the time that is left."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    FileSizeColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from aaiclick.api.jobs import GroupProgress
from aaiclick.cli.jobs import format_row_rate


class RateColumn(ProgressColumn):
    """Tasks or rows per second: of the last moments, or the average if too little has been measured."""

    def render(self, task: Task) -> Text:
        average = task.completed / task.elapsed if task.elapsed else 0
        speed = task.finished_speed or task.speed or average
        return Text(f"{speed:,.1f}/s" if speed else "", style="progress.data.speed")


def make_progress() -> Progress:
    """Progress bars on standard error."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    return Progress(*columns, console=Console(stderr=True))


def make_transfer_progress() -> Progress:
    """Progress of bytes on standard error, for a stream of unknown length."""
    columns = (TextColumn("{task.description}"), FileSizeColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def update_groups(bars: Progress, bar_ids: dict[str, TaskID], groups: Sequence[GroupProgress]) -> None:
    """Update the bar of each group of a job; `bar_ids` are the bars by label."""
    for group in groups:
        label = group.group or "tasks"
        if label not in bar_ids:
            bar_ids[label] = bars.add_task(label, total=group.total)
        failed = f" [red]{group.failed} failed" if group.failed else ""
        rows = f" [dim]{format_row_rate(group.rows, group.seconds)} rows" if group.rows is not None else ""
        bars.update(bar_ids[label], total=group.total, completed=group.completed, description=f"{label}{rows}{failed}")
