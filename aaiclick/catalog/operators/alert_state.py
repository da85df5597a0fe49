"""State machine of an alert: when a value raises or clears it.

Two mechanisms prevent flapping: a value between the threshold and the clear threshold changes nothing, and a transition
needs the configured number of consecutive evaluations.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from aaiclick.catalog.operators.config import Condition

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
    """Whether the alert is raised, and the number of consecutive evaluations in favour of the other state."""

    raised: bool = False
    streak: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"raised": self.raised, "streak": self.streak}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> AlertState:
        return cls(bool(data["raised"]), int(data["streak"])) if data else cls()


def evaluate_alert(
    condition: Condition, state: AlertState, value: float | None, missing: MissingPolicy = "keep"
) -> tuple[AlertState, Transition | None]:
    """Return the state after one more value (None or NaN: missing), and the transition."""
    confirms = (
        _should_raise(condition, value, missing) if not state.raised else _should_clear(condition, value, missing)
    )
    if confirms is None:
        return state, None
    if not confirms:
        return AlertState(state.raised), None
    streak = state.streak + 1
    if streak < (condition.clear_evaluations if state.raised else condition.for_evaluations):
        return AlertState(state.raised, streak), None
    return AlertState(not state.raised), "cleared" if state.raised else "raised"


def _should_raise(condition: Condition, value: float | None, missing: MissingPolicy) -> bool | None:
    """Return whether a value is in favour of raising the alert; None if it is neutral."""
    if value is None or math.isnan(value):
        return None if missing == "keep" else missing == "raise"
    return _COMPARE[condition.comparison](value, condition.threshold)


def _should_clear(condition: Condition, value: float | None, missing: MissingPolicy) -> bool | None:
    if value is None or math.isnan(value):
        return None if missing == "keep" else missing == "clear"
    limit = condition.threshold if condition.clear_threshold is None else condition.clear_threshold
    return not _COMPARE[condition.comparison](value, limit)
