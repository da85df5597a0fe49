"""Is the service alive, and can it do its work? And what it offers, as OpenAPI."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.responses import JSONResponse

from aaiclick._version import __version__
from aaiclick.server.permissions import Permission
from aaiclick.server.problems import translate
from aaiclick.server.routing import Caller, Routes
from aaiclick.server.service import Service
from aaiclick.store.health import Check, check_work

routes = Routes("health")

ANSWER_SECONDS = 5.0


class Alive(BaseModel):
    """The process answers."""

    status: str = "ok"
    version: str = __version__


class Checked(BaseModel):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


class Ready(BaseModel):
    """Whether requests can be served (`ok`), and everything that was looked at. No worker is no reason to stay away."""

    ok: bool
    checks: list[Checked]


@routes.get("/health/live", Permission.PUBLIC)
async def live() -> Alive:
    """Say that the process answers."""
    return Alive()


@routes.get("/health/ready", Permission.PUBLIC, response_model=Ready)
async def ready(call: Caller, response: Response) -> Any:
    """Say whether the service can do its work; 503 if its database does not answer."""
    checks = await _look(call.service)
    ok = next(check.ok for check in checks if check.name == "database")
    if not ok:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return Ready(ok=ok, checks=[Checked(name=check.name, ok=check.ok, detail=check.detail) for check in checks])


@routes.get("/openapi.json", Permission.PUBLIC, include_in_schema=False)
async def openapi(request: Request) -> Response:
    """This API, described."""
    return JSONResponse(request.app.openapi())


async def _look(service: Service) -> list[Check]:
    try:
        async with asyncio.timeout(ANSWER_SECONDS), service.owner() as connection:
            return await check_work(connection)
    except Exception as error:
        if translate(error) is None:
            raise
        return [Check("database", False, "PostgreSQL does not answer")]  # where it is, is nobody's business here
