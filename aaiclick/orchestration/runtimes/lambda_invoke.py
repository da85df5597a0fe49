"""Invoke Lambda functions: each invocation runs one task that was claimed for it.

The event equals the response of `/v1/worker-api/tasks/fetch` for the same lease, without a credential (`clickhouse` is
null): the function fetches that from the server with the key in its environment.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from aaiclick.api.worker_protocol.claims import FetchResponse
from aaiclick.orchestration.runtimes.boto3_client import call_aws, make_client
from aaiclick.store.engine import queries
from aaiclick.store.engine.leases_and_outcomes import Claim

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

EVENT_BYTES = 200_000
"""Lambda accepts 256 KB: in a larger event `kwargs` is null, and the function fetches the arguments."""


async def make_event(connection: Connection, claim: Claim, worker_id: int, lease_seconds: float) -> dict[str, object]:
    """Make the payload of an invocation."""
    kwargs = await queries.resolve_arguments(connection, claim.job_id, claim.kwargs)
    payload = FetchResponse(task=replace(claim, kwargs=kwargs), worker_id=worker_id, lease_seconds=lease_seconds)
    if len(payload.model_dump_json()) > EVENT_BYTES:
        payload.task.kwargs = "null"
    return payload.model_dump(mode="json")


async def invoke_function(function: str, event: dict[str, object]) -> None:
    """Invoke the function asynchronously; raises UnreachableError."""
    await call_aws(
        f"The function {function!r}",
        make_client("lambda").invoke,
        FunctionName=function,
        InvocationType="Event",
        Payload=json.dumps(event).encode(),
    )
