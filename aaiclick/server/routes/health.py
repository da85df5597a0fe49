"""Health checks and the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from starlette.responses import JSONResponse

from aaiclick.api.health import CheckResult, HealthResponse, LivenessResponse
from aaiclick.operations.actor import Permission
from aaiclick.orchestration.health import ANSWER_SECONDS, check_clickhouse, run_with_timeout
from aaiclick.server.app_state import AppState
from aaiclick.server.problem_responses import translate_error
from aaiclick.server.routing import Context, Routes
from aaiclick.store.engine.health import HealthCheck, check_health
from aaiclick.store.enums import DEFAULT_ORG_ID

routes = Routes("health")


@routes.get("/health/live", Permission.PUBLIC)
async def check_liveness() -> LivenessResponse:
    """Check that the process responds."""
    return LivenessResponse()


@routes.get("/health/ready", Permission.PUBLIC, response_model=HealthResponse)
async def check_readiness(context: Context, response: Response) -> Any:
    """Check that the server can serve requests: 503 if PostgreSQL is unreachable."""
    checks = await _check_postgres(context.app_state)
    return _to_health_response(response, checks, ok=next(check.ok for check in checks if check.name == "database"))


@routes.get("/health", Permission.PUBLIC, response_model=HealthResponse)
async def check_service_health(context: Context, response: Response) -> Any:
    """Check that jobs can run: 503 if any check fails."""
    checks = await context.app_state.health_cache.get(DEFAULT_ORG_ID, lambda: _check_all(context.app_state))
    return _to_health_response(response, checks, ok=all(check.ok for check in checks))


@routes.get("/openapi.json", Permission.PUBLIC, include_in_schema=False)
async def get_openapi_document(request: Request) -> Response:
    """Get the OpenAPI document."""
    return JSONResponse(request.app.openapi())


def _to_health_response(response: Response, checks: Sequence[HealthCheck], *, ok: bool) -> HealthResponse:
    if not ok:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return HealthResponse(
        ok=ok, checks=[CheckResult(name=check.name, ok=check.ok, detail=check.detail) for check in checks]
    )


async def _check_all(app_state: AppState) -> list[HealthCheck]:
    clickhouse, work = await asyncio.gather(
        check_clickhouse(lambda: app_state.clickhouse_endpoint(DEFAULT_ORG_ID)), _check_postgres(app_state)
    )
    if not clickhouse.ok:
        clickhouse = replace(clickhouse, detail="ClickHouse does not answer")  # its address is not public
    return [*work, clickhouse]


async def _check_postgres(app_state: AppState) -> list[HealthCheck]:
    async def check() -> list[HealthCheck]:
        async with app_state.owner_connection() as connection:
            return await check_health(connection, worker_timeout_seconds=app_state.settings.worker_timeout_seconds)

    try:
        return await run_with_timeout(ANSWER_SECONDS, check())
    except Exception as error:
        if translate_error(error) is None:
            raise
        return [HealthCheck("database", False, "PostgreSQL does not answer")]  # its address is not public
