"""Options for weight and limits, shared by several commands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import click

from aaiclick.api.workers import LimitsRequest
from aaiclick.cli.param_types import Number

T = TypeVar("T")

MAX_VALUE = 1_000_000
OPTIONS = (
    click.option(
        "--weight",
        type=click.IntRange(1, MAX_VALUE),
        default=1,
        show_default=True,
        help="Share of the workers relative to others.",
    ),
    click.option("--max-running", type=click.IntRange(0, MAX_VALUE), help="Maximum running tasks."),
    click.option("--rate", type=Number(0, MAX_VALUE, min_open=True), help="Maximum task starts per second."),
    click.option(
        "--burst", type=click.IntRange(1, MAX_VALUE), help="Maximum burst of task starts [default: the rate]."
    ),
)


def limit_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add `--weight`, `--max-running`, `--rate` and `--burst`, passed to the command as `limits`."""

    @functools.wraps(function)
    def command(weight: int, max_running: int | None, rate: float | None, burst: int | None, **options: object) -> T:
        if burst is not None and rate is None:
            raise click.UsageError("--burst requires --rate.")
        limits = LimitsRequest(weight=weight, max_running=max_running, rate_per_second=rate, rate_burst=burst)
        return function(limits=limits, **options)

    return functools.reduce(lambda decorated, option: option(decorated), reversed(OPTIONS), command)
