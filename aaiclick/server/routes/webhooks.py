"""Route of webhooks: a request signed by HMAC starts a source of a DAG."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Path, Request, Response

from aaiclick.api.dags import WebhookResponse
from aaiclick.catalog import webhooks
from aaiclick.operations.actor import Permission
from aaiclick.server.routing import Context, Routes

routes = Routes("webhooks")

ResourceName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


@routes.post(
    "/v1/webhooks/{org_id}/{dag}/{job}", Permission.PUBLIC, status_code=HTTPStatus.ACCEPTED,
    responses={200: {"description": "The delivery was received before", "model": WebhookResponse}},
)  # fmt: skip
async def receive_webhook(
    context: Context, request: Request, response: Response, org_id: UUID, dag: ResourceName, job: ResourceName
) -> WebhookResponse:
    """Start a source of a DAG by a signed request.

    The body is JSON or empty, and becomes the payload of the event. `Aaiclick-Signature: t=TIMESTAMP,v1=HEX` signs
    `TIMESTAMP.BODY` by HMAC-SHA256. With `Aaiclick-Delivery: ID`, which may be repeated under a new timestamp, it signs
    `TIMESTAMP.delivery=ID.BODY`.
    """
    body = await request.body()
    header = request.headers.get(webhooks.HEADER, "")
    async with context.app_state.tenant_connection(org_id) as connection:
        job_id, is_new = await webhooks.receive_webhook(
            connection, org_id, dag, job, body, header, request.headers.get(webhooks.DELIVERY_HEADER)
        )
    if not is_new:
        response.status_code = HTTPStatus.OK
    return WebhookResponse(job_id=job_id)
