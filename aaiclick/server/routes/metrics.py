"""Metrics for Prometheus, of all organisations."""

from __future__ import annotations

from fastapi import Response
from prometheus_client import CONTENT_TYPE_LATEST

from aaiclick.operations.actor import Permission
from aaiclick.server.metrics import scrape_metrics
from aaiclick.server.routing import Context, Routes
from aaiclick.store.enums import DEFAULT_ORG_ID

routes = Routes("metrics")


@routes.get(
    "/metrics",
    Permission.OBSERVER,
    response_class=Response,
    responses={
        200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
async def get_metrics(context: Context) -> Response:
    """Get metrics in Prometheus' text format."""
    app_state = context.app_state

    async def scrape() -> bytes:
        async with app_state.owner_connection() as connection:
            return await scrape_metrics(connection, worker_timeout_seconds=app_state.settings.worker_timeout_seconds)

    text = await app_state.metrics_cache.get(DEFAULT_ORG_ID, scrape)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
