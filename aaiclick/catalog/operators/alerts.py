"""Whether a value raises an alert or ends one.

Two things keep an alert from flapping. A value between the threshold and the clear threshold changes nothing; and it
takes as many evaluations in a row as the condition asks for, each way.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from aaiclick.catalog.operators.built_in import Condition

Transition = Literal["raised", "cleared"]
MissingPolicy = Literal["keep", "raise", "clear"]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class AlertState:
    """Whether it is raised, and how many evaluations in a row spoke for the other state."""

    raised: bool = False
    streak: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"raised": self.raised, "streak": self.streak}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> AlertState:
        return cls(bool(data["raised"]), int(data["streak"])) if data else cls()


def evaluate(
    condition: Condition, state: AlertState, value: float | None, missing: MissingPolicy = "keep"
) -> tuple[AlertState, Transition | None]:
    """The state after one more value (None or NaN: there is none), and what changed."""
    speaks = _raises(condition, value, missing) if not state.raised else _clears(condition, value, missing)
    if speaks is None:
        return state, None
    if not speaks:
        return AlertState(state.raised), None
    streak = state.streak + 1
    if streak < (condition.clear_evaluations if state.raised else condition.for_evaluations):
        return AlertState(state.raised, streak), None
    return AlertState(not state.raised), "cleared" if state.raised else "raised"


def _raises(condition: Condition, value: float | None, missing: MissingPolicy) -> bool | None:
    """Whether a value speaks for raising it; None: it says nothing."""
    if value is None or math.isnan(value):
        return None if missing == "keep" else missing == "raise"
    return _COMPARE[condition.comparison](value, condition.threshold)


def _clears(condition: Condition, value: float | None, missing: MissingPolicy) -> bool | None:
    if value is None or math.isnan(value):
        return None if missing == "keep" else missing == "clear"
    limit = condition.threshold if condition.clear_threshold is None else condition.clear_threshold
    return not _COMPARE[condition.comparison](value, limit)
