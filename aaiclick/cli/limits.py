"""What an organisation or a queue may have: options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from aaiclick.cli.kinds import Number
from aaiclick.store.orgs import Limits

T = TypeVar("T")

MOST = 1_000_000
OPTIONS = (
    click.option(
        "--weight", type=click.IntRange(1, MOST), default=1, show_default=True, help="Its share when several wait."
    ),
    click.option("--max-running", type=click.IntRange(0, MOST), help="Tasks that may run at once."),
    click.option("--rate", type=Number(0, MOST, min_open=True), help="Tasks that may start per second."),
    click.option(
        "--burst", type=click.IntRange(1, MOST), help="Tasks that may start at once [default: as in a second]."
    ),
)


def limit_options(function: Callable[..., T]) -> Callable[..., T]:
    """`--weight`, `--max-running`, `--rate` and `--burst`; the command is given them as `limits`."""

    @functools.wraps(function)
    def command(weight: int, max_running: int | None, rate: float | None, burst: int | None, **rest: Any) -> T:
        if burst is not None and rate is None:
            raise click.UsageError("--burst goes with --rate.")
        return function(limits=Limits(weight, max_running, rate, burst), **rest)

    return functools.reduce(lambda made, option: option(made), reversed(OPTIONS), command)


def given(limits: Limits) -> dict[str, Any]:
    """Limits as the API takes them, without those that there are not."""
    return {name: value for name, value in asdict(limits).items() if value is not None}
