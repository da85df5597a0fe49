"""Functions of Lambda: each invocation is given one task that was claimed for it.

The event has the shape of `/internal/task-fetch`: the task with its lease and its arguments, but no credential. What
the function needs for the data of its organisation it asks the server for, with the key of its own environment.
"""

from __future__ import annotations

import json
from typing import Any

from aaiclick.orchestration.runtimes.aws import call, client
from aaiclick.orchestration.transport import forms
from aaiclick.store.leases import Claim

EVENT_BYTES = 200_000
"""Lambda takes 256 KB at a time: of more, the arguments are left out, and fetched by the function."""


def event_of(claim: Claim, worker_id: int, lease_seconds: float) -> dict[str, Any]:
    """What the function is given."""
    event = {"task": forms.claim_form(claim), "worker_id": str(worker_id), "lease_seconds": lease_seconds}
    if len(json.dumps(event)) > EVENT_BYTES:
        event["task"] = {**forms.claim_form(claim), "kwargs": None}
    return event


async def invoke(function: str, event: dict[str, Any]) -> None:
    """Have the function run, and do not wait for it; raises UnreachableError."""
    await call(
        f"The function {function!r}",
        client("lambda").invoke,
        FunctionName=function,
        InvocationType="Event",
        Payload=json.dumps(event).encode(),
    )
