"""What a task of a definition made, in words."""

from __future__ import annotations

import json
from typing import Any


def made_in_words(outputs: str | None) -> str:
    """Out of a task's `outputs`, which are JSON; '' for a task that is not of a DAG, or has made nothing yet."""
    found: dict[str, Any] = json.loads(outputs or "{}")
    made = [f"{name}: {said['rows']} rows" for name, said in found.items() if isinstance(said, dict) and "rows" in said]
    tasks = dict.fromkeys(task for each in found.get("reused", ()) for task in each["made_by"])
    made += [f"reused from task {', '.join(tasks)}"] if tasks else []
    made += [str(found["waits"])] if "waits" in found else []
    return "; ".join(made)
