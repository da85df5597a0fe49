"""Options of a task: one value, passed whole from the keyword arguments of `@task` to the columns of `tasks`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal, TypedDict, get_args

from aaiclick.errors import SubmitError
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_QUEUE
from aaiclick.store.name_and_key_limits import check_key

SMALLINT_MAX = 32767
"""The largest smallint of PostgreSQL."""


When = Literal["all", "any", "failed", "ended"]
"""Which ends of its predecessors start a task (`TriggerRule`); "all": when they have completed."""

HANDLER_RULES = ("failed", "ended")
"""Rules of tasks that wait for the end of their predecessors, not for their success."""


class TaskKeywords(TypedDict, total=False):
    """Options as keyword arguments of `@task`, `create_task`, `enqueue` and others; `retries` is `max_attempts` - 1."""

    retries: int | None
    max_attempts: int | None
    queue: str
    priority: int
    timeout_seconds: float | None
    retry_policy: Mapping[str, float] | None
    run_at: datetime | None
    concurrency_key: str | None
    concurrency_limit: int | None
    critical: bool
    when: When | None
    repeatable: bool
    rate: str | None
    rate_key: str | None


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options of a task; many tasks share one instance.

    `sql/columns.sql` lists the columns in the order of these fields; `retry_policy` is JSON text. Only DAG files set
    `lease_seconds`.
    """

    max_attempts: int | None = None
    """None: WORKER_MAX_RETRIES + 1."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    timeout_seconds: float | None = None
    lease_seconds: float | None = None
    retry_policy: str | None = None
    run_at: datetime | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    critical: bool = True
    when: When | None = None
    """None: "all"."""
    repeatable: bool = False
    """Without retries: whether an attempt that was interrupted may run again."""
    rate: str | None = None
    """Maximum number of claims of the key in a number of seconds: "100/60", from `parse_rate`."""
    rate_key: str | None = None
    """None: the type of the task."""

    def change(self, keywords: TaskKeywords) -> TaskOptions:
        """These options with others from keyword arguments; raises TypeError for unknown ones."""
        if not keywords:
            return self
        for name, value in keywords.items():
            _check_type(name, value)
        changes: dict[str, Any] = dict(keywords)
        if (retries := changes.pop("retries", None)) is not None:
            if "max_attempts" in changes:
                raise SubmitError("A task has retries and max_attempts.", remedy="Give one of them.")
            changes["max_attempts"] = retries + 1
        if (policy := changes.get("retry_policy")) is not None:
            _check_retry_policy(policy)
            changes["retry_policy"] = json.dumps(dict(policy))
        if changes.get("when") == "all":
            changes["when"] = None
        if (rate := changes.get("rate")) is not None:
            changes["rate"] = parse_rate(rate)
        return replace(self, **changes)

    def check(self, what: object) -> None:
        """Raise SubmitError for values out of range; `what` names the task in the message."""
        if not -SMALLINT_MAX - 1 <= self.priority <= SMALLINT_MAX:
            raise SubmitError(
                f"{what} has priority {self.priority}.",
                remedy=f"Priorities lie between {-SMALLINT_MAX - 1} and {SMALLINT_MAX}.",
            )
        if self.max_attempts is not None and not 1 <= self.max_attempts <= SMALLINT_MAX:
            raise SubmitError(
                f"{what} would be tried {self.max_attempts} times.",
                remedy=f"max_attempts is 1 to {SMALLINT_MAX} (retries + 1).",
            )
        if not self.queue.strip():
            raise SubmitError(f"{what} has no queue: its name is empty.", remedy='Give a name: queue="reports".')
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise SubmitError(
                f"{what} has run_at {self.run_at.isoformat()} without a time zone.",
                remedy="Add one, as datetime(…, tzinfo=UTC) or datetime.now(UTC) + timedelta(…).",
            )
        if self.when not in (None, *get_args(When)):
            raise SubmitError(f"{what} has when={self.when!r}.", remedy=f"It is one of {', '.join(get_args(When))}.")
        check_timeout(what, self.timeout_seconds)
        check_key(f"{what} has a queue that", self.queue)
        for name, key in (("concurrency_key", self.concurrency_key), ("rate_key", self.rate_key)):
            if key is not None:
                check_key(f"{what} has a {name} that", key)
        if self.concurrency_limit is not None and not 1 <= self.concurrency_limit < 1 << 31:
            raise SubmitError(f"{what} has concurrency_limit {self.concurrency_limit}.", remedy="It is 1 or more.")
        if self.rate_key is not None and self.rate is None:
            raise SubmitError(f"{what} has a rate_key, but no rate.", remedy='Add a rate, as rate="100/m".')

    def values(self) -> tuple[object, ...]:
        """Values of OPTION_COLUMNS."""
        return (self.max_attempts or get_settings().worker_max_retries + 1, *_other_values(self))

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> TaskOptions:
        """Options from a row that has OPTION_COLUMNS."""
        return cls(*[row[column] for column in OPTION_COLUMNS])

    @classmethod
    def from_json(cls, text: str) -> TaskOptions:
        """Options from the text of `to_json`."""
        return DEFAULT_OPTIONS.with_json(json.loads(text))

    def with_json(self, fields: Mapping[str, Any]) -> TaskOptions:
        """These options with the fields of `to_json`."""
        values = dict(fields)
        if (policy := values.get("retry_policy")) is not None:
            values["retry_policy"] = json.dumps(policy)
        if (run_at := values.get("run_at")) is not None:
            values["run_at"] = datetime.fromisoformat(run_at)
        return replace(self, **values)

    def to_json(self) -> dict[str, object]:
        """Options that differ from the default, as fields of a JSON object."""
        values = {name: value for name, value in asdict(self).items() if value != getattr(DEFAULT_OPTIONS, name)}
        if self.retry_policy is not None:
            values["retry_policy"] = json.loads(self.retry_policy)
        if self.run_at is not None:
            values["run_at"] = self.run_at.isoformat()
        return values


OPTION_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "retries": ((int,), "a whole number"),
    "max_attempts": ((int,), "a whole number"),
    "queue": ((str,), "the name of a queue"),
    "priority": ((int,), "a whole number"),
    "timeout_seconds": ((int, float), "a number of seconds"),
    "retry_policy": ((Mapping,), '{"base_seconds": 1, "cap_seconds": 3600}'),
    "run_at": ((datetime,), "a datetime with a time zone"),
    "concurrency_key": ((str,), "text"),
    "concurrency_limit": ((int,), "a whole number"),
    "critical": ((bool,), "True or False"),
    "repeatable": ((bool,), "True or False"),
    "rate": ((str,), "a number and a period, as '100/m' or '5/10s'"),
    "rate_key": ((str,), "text"),
}
"""Types of the values of TaskKeywords, and their description."""


def _check_type(name: str, value: object) -> None:
    """Raise SubmitError for a value of the wrong type; names are checked by the caller."""
    types, description = OPTION_TYPES.get(name, ((object,), ""))
    is_valid = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if value is not None and not is_valid and types != (object,):
        raise SubmitError(f"The option {name} has the value {value!r:.60}.", remedy=f"Give {description}.")


POLICY_FIELDS = ("base_seconds", "cap_seconds")


def _check_retry_policy(policy: Mapping[str, object]) -> None:
    """Raise SubmitError for other fields than those of a retry policy, and for values that are no numbers."""
    for name, value in policy.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name not in POLICY_FIELDS or not is_number:
            example = OPTION_TYPES["retry_policy"][1]
            raise SubmitError(
                f"The option retry_policy has the field {name!r:.40} with the value {value!r:.40}.",
                remedy=f"Its fields are {' and '.join(POLICY_FIELDS)}, numbers of seconds: {example}.",
            )


_RATE = re.compile(r"([0-9]{1,9})/([0-9]{0,5}(?:\.[0-9]{1,3})?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_RATE_SECONDS = 86_400.0


def parse_rate(text: str) -> str:
    """Normalise a rate: "100/m", "5/10s" and "5/10" become a number of tasks and of seconds, "100/60"."""
    match = _RATE.fullmatch(text.replace(" ", ""))
    if match is not None and any(match.groups()[1:]):
        count, seconds = int(match[1]), float(match[2] or 1) * _SECONDS[match[3]]
        if 1 <= count < 1 << 30 and 0.1 <= seconds <= MAX_RATE_SECONDS:
            return f"{count}/{seconds:.9g}"
    raise SubmitError(
        f"The rate {text!r:.50} is not valid.",
        remedy="Give a number of tasks and a period of 0.1 seconds to a day: '100/m', '5/10s', '1000/h'.",
    )


DEFAULT_OPTIONS = TaskOptions()

_names = tuple(field.name for field in fields(TaskOptions))
_other_values = attrgetter(*_names[1:])

OPTION_COLUMNS = tuple({"run_at": "available_at", "when": "trigger_rule"}.get(name, name) for name in _names)
"""Columns of `tasks` that hold the options; the time of the first run becomes that of the next one, and `when` is a
reserved word of SQL.
"""


def check_timeout(what: object, seconds: float | None) -> None:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 < seconds < float("inf")):
        raise SubmitError(f"{what} has timeout_seconds {seconds!r:.30}.", remedy="Give a number of seconds above zero.")
