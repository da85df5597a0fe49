"""Health of the server and of what jobs need; the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.responses import JSONResponse

from aaiclick._version import __version__
from aaiclick.orchestration.health import ANSWER_SECONDS, answer_within, check_clickhouse
from aaiclick.server.permissions import Permission
from aaiclick.server.problems import translate
from aaiclick.server.routing import Caller, Routes
from aaiclick.server.service import Service
from aaiclick.store.health import Check, check_work
from aaiclick.store.words import DEFAULT_ORG_ID

routes = Routes("health")


class Alive(BaseModel):
    """The process answers."""

    status: str = "ok"
    version: str = __version__


class Checked(BaseModel):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


class Healthy(BaseModel):
    """Whether every check holds (`ok`), and the result of each."""

    ok: bool
    checks: list[Checked]


@routes.get("/health/live", Permission.PUBLIC)
async def live() -> Alive:
    """Say that the process answers."""
    return Alive()


@routes.get("/health/ready", Permission.PUBLIC, response_model=Healthy)
async def ready(call: Caller, response: Response) -> Any:
    """Say whether the server can serve requests: 503 if PostgreSQL does not answer."""
    checks = await _check_work(call.service)
    return _answer(response, checks, ok=next(check.ok for check in checks if check.name == "database"))


@routes.get("/health", Permission.PUBLIC, response_model=Healthy)
async def health(call: Caller, response: Response) -> Any:
    """Say whether jobs can run: 503 if any check fails."""
    checks = await call.service.health.get(DEFAULT_ORG_ID, lambda: _check_all(call.service))
    return _answer(response, checks, ok=all(check.ok for check in checks))


@routes.get("/openapi.json", Permission.PUBLIC, include_in_schema=False)
async def openapi(request: Request) -> Response:
    """This API, described."""
    return JSONResponse(request.app.openapi())


def _answer(response: Response, checks: Sequence[Check], *, ok: bool) -> Healthy:
    if not ok:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return Healthy(ok=ok, checks=[Checked(name=check.name, ok=check.ok, detail=check.detail) for check in checks])


async def _check_all(service: Service) -> list[Check]:
    clickhouse, work = await asyncio.gather(
        check_clickhouse(lambda: service.clickhouse(DEFAULT_ORG_ID)), _check_work(service)
    )
    if not clickhouse.ok:
        clickhouse = replace(clickhouse, detail="ClickHouse does not answer")  # its address is not public
    return [*work, clickhouse]


async def _check_work(service: Service) -> list[Check]:
    async def check() -> list[Check]:
        async with service.owner() as connection:
            return await check_work(connection, worker_timeout_seconds=service.settings.worker_timeout_seconds)

    try:
        return await answer_within(ANSWER_SECONDS, check())
    except Exception as error:
        if translate(error) is None:
            raise
        return [Check("database", False, "PostgreSQL does not answer")]  # its address is not public
