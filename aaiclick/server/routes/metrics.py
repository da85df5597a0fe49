"""Figures for Prometheus: the operator's, over all organisations."""

from __future__ import annotations

from fastapi import Response
from prometheus_client import CONTENT_TYPE_LATEST

from aaiclick.server.permissions import Permission
from aaiclick.server.routing import Caller, Routes

routes = Routes("metrics")


@routes.get(
    "/metrics",
    Permission.OBSERVER,
    response_class=Response,
    responses={
        200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
async def metrics(call: Caller) -> Response:
    """Figures in Prometheus' format."""
    return Response(await call.service.figures.text(), media_type=CONTENT_TYPE_LATEST)
