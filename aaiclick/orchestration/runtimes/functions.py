"""Functions of Lambda: each invocation is given one task that was claimed for it.

The event is what `/internal/task-fetch` answers for the same lease, without a credential (`clickhouse` is null): the
function fetches that from the server with the key in its own environment.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aaiclick.orchestration.runtimes.aws import call, client
from aaiclick.orchestration.transport import forms
from aaiclick.store import reads
from aaiclick.store.leases import Claim

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

EVENT_BYTES = 200_000
"""Lambda takes 256 KB at a time: of a larger event `kwargs` is null, and the function fetches the arguments."""


async def make_event(connection: Connection, claim: Claim, worker_id: int, lease_seconds: float) -> dict[str, Any]:
    """The payload of an invocation."""
    kwargs = await reads.resolve_arguments(connection, claim.job_id, claim.kwargs)
    event = forms.payload_form(replace(claim, kwargs=kwargs), worker_id, lease_seconds)
    if len(json.dumps(event)) > EVENT_BYTES:
        event["task"]["kwargs"] = None
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
