"""Webhooks: a signed request starts a source of a DAG. The signature is the credential."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Path, Request, Response
from pydantic import BaseModel, Field

from aaiclick.catalog import webhooks
from aaiclick.server.permissions import Permission
from aaiclick.server.routing import Caller, Routes

routes = Routes("webhooks")

Name = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


class Started(BaseModel):
    """The run that a request has started."""

    job_id: Annotated[str, Field(description="The job; the same for a request that comes twice.")]


@routes.post(
    "/v1/webhooks/{org_id}/{dag}/{job}", Permission.PUBLIC, status_code=HTTPStatus.ACCEPTED,
    responses={200: {"description": "It was started before", "model": Started}},
)  # fmt: skip
async def receive(call: Caller, request: Request, response: Response, org_id: UUID, dag: Name, job: Name) -> Started:
    """Start a source by a signed request.

    The body is JSON or empty, and becomes the payload of the event. `Aaiclick-Signature: t=TIMESTAMP,v1=HEX` signs
    `TIMESTAMP.BODY` by HMAC-SHA256. With `Aaiclick-Delivery: ID`, which may be repeated under a new timestamp, it signs
    `TIMESTAMP.delivery=ID.BODY`.
    """
    body = await request.body()
    header = request.headers.get(webhooks.HEADER, "")
    async with call.service.tenant(org_id) as connection:
        job_id, new = await webhooks.receive(
            connection, org_id, dag, job, body, header, request.headers.get(webhooks.DELIVERY_HEADER)
        )
    if not new:
        response.status_code = HTTPStatus.OK
    return Started(job_id=str(job_id))
