"""Operator `alert_evaluate`: compares the value of every key with the condition and the stored alert state."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.catalog.operators.alert_state import AlertState, evaluate_alert
from aaiclick.catalog.operators.config import AlertConfig
from aaiclick.data.io.bounded_reads import ReadLimits, read_bounded
from aaiclick.data.types import quote_name
from aaiclick.store.catalog.definition_runs import AlertTransition

MAX_KEYS = 100_000
INPUT_LIMITS = ReadLimits(rows=MAX_KEYS + 1, values=10 * MAX_KEYS)


async def run_alert(run: OperatorRun) -> Mapping[str, Any]:
    """Evaluate all keys. The output has a row per change (append), or the latest change of each key (replace)."""
    settings = cast("AlertConfig", run.settings)
    if len(run.definition.inputs) != 1:
        raise OperatorError(
            f"The definition {run.definition.name!r} must have one input.", remedy="An alert watches one dataset."
        )
    values = await _read_values(run, settings)
    state_by_key = dict((await run.state()) or {})
    changes: list[dict[str, object]] = []
    keys = [*values, *(key for key in state_by_key if key not in values and not run.partition)]
    for key in keys:
        entry = state_by_key.get(key, {})
        before = AlertState.from_json(entry.get("state"))
        state, change = evaluate_alert(settings.condition, before, values.get(key), settings.missing)
        row = entry.get("row")
        if change is not None:
            row = _build_row(settings, key, values.get(key), change)
            changes.append(row)
            run.alerts.append(AlertTransition(key, change == "raised", settings.severity, str(row["message"])))
            print(f"{settings.severity}: {row['message']}")  # noqa: T201  (into the task's log)
        state_by_key[key] = {"state": state.to_json(), "row": row and {**row, "value": _to_json_value(row["value"])}}
    run.remember(state_by_key)
    if not run.definition.outputs:
        return {}
    (output,) = run.definition.outputs
    if run.definition.spec.update_strategy == "append":
        return {output: changes}
    rows = (entry["row"] for entry in state_by_key.values() if entry["row"] is not None)
    return {output: [{**row, "value": None if row["value"] is None else float(row["value"])} for row in rows]}


def _to_json_value(value: Any) -> float | str | None:
    """Convert infinities and NaN, which JSON cannot represent, to text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


async def _read_values(run: OperatorRun, settings: AlertConfig) -> dict[str, float | None]:
    (name,) = run.definition.inputs
    table = run.table(name)
    for column in (settings.value, *settings.key):
        if column not in table.columns:
            raise OperatorError(
                f"The input {name!r} has no column {column!r}.", remedy=f"It has: {', '.join(table.columns)}."
            )
    columns = ", ".join(quote_name(column) for column in dict.fromkeys((settings.value, *settings.key)))
    text = f"SELECT {columns} FROM ({table.select()}) LIMIT {MAX_KEYS + 1}"  # noqa: S608
    result = await read_bounded(run.data.client, text, None, {}, INPUT_LIMITS, run.data.query_id())
    rows = result.to_pylist()
    if len(rows) > MAX_KEYS:
        raise OperatorError(
            f"The input {name!r} has more than {MAX_KEYS:,} rows.",
            remedy="Aggregate it in a definition before this one.",
        )
    values: dict[str, float | None] = {}
    for row in rows:
        value = row[settings.value]
        values[json.dumps([str(row[key_column]) for key_column in settings.key])] = (
            None if value is None else float(value)
        )
    return values


def _build_row(settings: AlertConfig, key: str, value: float | None, change: str) -> dict[str, Any]:
    key_values = dict(zip(settings.key, json.loads(key), strict=True))
    key_text = ", ".join(f"{name} {text}" for name, text in key_values.items())
    condition = f"{settings.value} {settings.condition.comparison} {settings.condition.threshold:g}"
    message = settings.message or f"{condition}{' for ' + key_text if key_text else ''} is {change}"
    return {
        **key_values,
        "change": change,
        "value": value,
        "severity": settings.severity,
        "message": message,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
