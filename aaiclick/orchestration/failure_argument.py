"""The final failure of a task, as an argument of other tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The final failure of a task, as the argument of a failure handler or of a dependent of a non-critical task.

    ```python
    @task
    def alert(failure: TaskFailure) -> None:
        print(f"{failure.type}: {failure.error}")
    ```
    """

    task_id: int
    type: str
    status: str
    attempt: int
    error: str
    critical: bool = True

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TaskFailure | None:
        """None for a final task that ran without a failure."""
        if "task_id" not in fields:
            return None
        names = ("type", "status", "attempt", "error")
        values = {name: fields[name] for name in names}
        return cls(int(fields["task_id"]), **values, critical=fields.get("critical", True))

    def to_json(self) -> dict[str, Any]:
        """Fields as the engine writes them."""
        return asdict(self) | {"task_id": str(self.task_id)}
