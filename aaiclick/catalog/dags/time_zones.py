"""Check of time zones in DAG files."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

from aaiclick.cron import parse_zone
from aaiclick.errors import ScheduleError


def check_zone(name: str) -> str:
    """Return the name of a time zone; an unknown one is a validation error with a remedy."""
    try:
        parse_zone(name)
    except ScheduleError as error:
        raise PydanticCustomError("zone", "{what}", {"what": error.what, "remedy": error.remedy}) from None
    return name
