"""Freshness policy of an output in a DAG file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from aaiclick.catalog.dags.data_tests import DURATION, Duration, duration_seconds
from aaiclick.catalog.dags.findings import Data, Finding, as_list, as_mapping
from aaiclick.catalog.dags.time_zones import check_zone
from aaiclick.catalog.dags.yaml_tree import Path
from aaiclick.store.catalog.freshness_policy import FreshnessPolicy

TIME_OF_DAY = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
_DAY = "(mon|tue|wed|thu|fri|sat|sun)"
DAYS = rf"^{_DAY}(-{_DAY})?(,{_DAY}(-{_DAY})?)*$"
CRON_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MAX_AGE_SECONDS = 3_650 * 86_400


class Freshness(BaseModel):
    """When a dataset has to be updated: at most so old, or by a time of day."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    max_age: Annotated[Duration | None, Field(description="The longest time between updates: 30m, 2h, 1d.")] = None
    by: Annotated[
        Annotated[str, StringConstraints(pattern=TIME_OF_DAY)] | None,
        Field(description="The time of day by which it has to be updated: 07:00."),
    ] = None
    timezone: Annotated[str, AfterValidator(check_zone)] = "UTC"
    days: Annotated[
        Annotated[str, StringConstraints(pattern=DAYS, max_length=60)] | None,
        Field(description="Days of the week with a deadline: mon-fri, or mon,wed."),
    ] = None

    def to_policy(self) -> FreshnessPolicy:
        age = None if self.max_age is None else duration_seconds(self.max_age)
        return FreshnessPolicy(age, self.by, self.timezone, "*" if self.days is None else to_cron_days(self.days))


def to_cron_days(days: str) -> str:
    """Return days as cron reads them: it begins weeks on Sunday and refuses ranges over that day, such as sat-sun."""
    return ",".join(_to_cron_range(*days_.split("-")) for days_ in days.upper().split(","))


def _to_cron_range(first: str, last: str = "") -> str:
    start, end = CRON_DAYS.index(first), CRON_DAYS.index(last or first)
    if start <= end:
        return first if start == end else f"{first}-{last}"
    return ",".join(CRON_DAYS[number % 7] for number in range(start, end + 8))


def check_freshness(base: Path, definition: Data) -> Iterator[Finding]:
    """Yield findings about the freshness policies of the outputs of a definition."""
    for index, output in enumerate(as_list(definition.get("outputs"))):
        policy: Any = as_mapping(output).get("freshness")
        if not isinstance(policy, dict):
            continue
        path, keys = (*base, "outputs", index, "freshness"), set(as_mapping(policy))
        age = as_mapping(policy).get("max_age")
        if isinstance(age, str) and re.fullmatch(DURATION, age) and duration_seconds(age) > MAX_AGE_SECONDS:
            yield Finding((*path, "max_age"), "max_age is more than ten years.", "Use at most 3650d.")
        if len(keys & {"max_age", "by"}) != 1:
            which = "both" if keys >= {"max_age", "by"} else "neither"
            yield Finding(path, f"A policy has max_age or by; this one has {which}.", "Write one of them.")
        for key in sorted(keys & {"timezone", "days"}) if "by" not in keys else ():
            yield Finding((*path, key), f"{key} belongs to by.", "Remove it, or add by: HH:MM.", True)
