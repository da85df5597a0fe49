"""Summaries of the outputs of a task."""

from __future__ import annotations

import json
from typing import Any


def summarize_outputs(outputs: str | None) -> str:
    """Describe the `outputs` (JSON) of a task in one line; '' if it belongs to no DAG or has no outputs yet."""
    parsed: dict[str, Any] = json.loads(outputs or "{}")
    parts = [
        f"{name}: {output['rows']} row{'s'[: output['rows'] != 1]}"
        for name, output in parsed.items()
        if isinstance(output, dict) and "rows" in output
    ]
    tasks = dict.fromkeys(task for entry in parsed.get("reused", ()) for task in entry["made_by"])
    parts += [f"reused from task {', '.join(tasks)}"] if tasks else []
    parts += [str(parsed["waits"])] if "waits" in parsed else []
    return "; ".join(parts)
