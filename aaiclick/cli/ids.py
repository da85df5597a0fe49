"""Ids on the command line: jobs, tasks and workers are named by numbers that PostgreSQL can keep."""

from __future__ import annotations

from typing import Any

import click
from click.types import IntParamType

from aaiclick.store.reads import LAST_ID


class IdType(IntParamType):
    """A number that can be an id: any other is refused before a database or a server is asked."""

    def __init__(self, first: int = 1) -> None:
        self._first = first

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not str(value).lstrip("-").isdecimal():
            self.fail(f"{value!r} is not a valid integer.", param, ctx)
        number = int(super().convert(value, param, ctx))
        if not self._first <= number <= LAST_ID:
            self.fail(f"{value} cannot be an id: ids are numbers from 1 to {LAST_ID}.", param, ctx)
        return number


ID = IdType()
PLACE = IdType(0)
"""Where a listing goes on: behind an id, or from the beginning."""
