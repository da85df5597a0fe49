"""`alert_evaluate` in a task: every key's value against the condition, with what was remembered of it."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.operators.alerts import AlertState, evaluate
from aaiclick.catalog.operators.built_in import AlertConfig
from aaiclick.catalog.running.run import OperatorRun
from aaiclick.data.bounded_reads import ReadLimits, read_bounded
from aaiclick.data.types import quote_name

MAX_KEYS = 100_000
WATCHED = ReadLimits(rows=MAX_KEYS + 1, values=10 * MAX_KEYS)


async def run_alert(run: OperatorRun) -> Mapping[str, Any]:
    """The output has a row per change of a key: appended to, all of them; replaced, the latest of each key."""
    settings = cast("AlertConfig", run.settings)
    if len(run.work.inputs) != 1:
        raise OperatorError(f"The job {run.work.name!r} must have one input.", remedy="An alert watches one dataset.")
    values = await _values(run, settings)
    remembered = dict((await run.state()) or {})
    changes: list[dict[str, Any]] = []
    keys = [*values, *(key for key in remembered if key not in values and not run.partition)]
    for key in keys:
        known = remembered.get(key, {})
        before = AlertState.from_json(known.get("state"))
        state, change = evaluate(settings.condition, before, values.get(key), settings.missing)
        row = known.get("row")
        if change is not None:
            row = _row(settings, key, values.get(key), change)
            changes.append(row)
            print(f"{settings.severity}: {row['message']}")  # noqa: T201  (into the task's log)
        remembered[key] = {"state": state.to_json(), "row": row and {**row, "value": _as_json(row["value"])}}
    run.remember(remembered)
    if not run.work.outputs:
        return {}
    (output,) = run.work.outputs
    if run.work.spec.update_strategy == "append":
        return {output: changes}
    rows = (each["row"] for each in remembered.values() if each["row"] is not None)
    return {output: [{**row, "value": None if row["value"] is None else float(row["value"])} for row in rows]}


def _as_json(value: Any) -> float | str | None:
    """JSON has no word for what ClickHouse makes of a division by zero."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


async def _values(run: OperatorRun, settings: AlertConfig) -> dict[str, float | None]:
    (name,) = run.work.inputs
    table = run.table(name)
    for column in (settings.value, *settings.key):
        if column not in table.columns:
            raise OperatorError(
                f"The input {name!r} has no column {column!r}.", remedy=f"It has: {', '.join(table.columns)}."
            )
    columns = ", ".join(quote_name(column) for column in dict.fromkeys((settings.value, *settings.key)))
    text = f"SELECT {columns} FROM ({table.select()}) LIMIT {MAX_KEYS + 1}"  # noqa: S608
    found = await read_bounded(run.data.client, text, None, {}, WATCHED, run.data.query_id())
    rows = found.to_pylist()
    if len(rows) > MAX_KEYS:
        raise OperatorError(
            f"The input {name!r} has more than {MAX_KEYS:,} rows.", remedy="Aggregate it before it is watched."
        )
    values: dict[str, float | None] = {}
    for row in rows:
        value = row[settings.value]
        values[json.dumps([str(row[each]) for each in settings.key])] = None if value is None else float(value)
    return values


def _row(settings: AlertConfig, key: str, value: float | None, change: str) -> dict[str, Any]:
    named = dict(zip(settings.key, json.loads(key), strict=True))
    where = ", ".join(f"{name} {text}" for name, text in named.items())
    condition = f"{settings.value} {settings.condition.comparison} {settings.condition.threshold:g}"
    message = settings.message or f"{condition}{' for ' + where if where else ''} is {change}"
    return {
        **named,
        "change": change,
        "value": value,
        "severity": settings.severity,
        "message": message,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
