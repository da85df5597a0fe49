"""The application: every route behind its guard, everything behind the gate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from aaiclick._version import __version__
from aaiclick.catalog.analysis import use_pool
from aaiclick.orchestration.loops import tidy_logs
from aaiclick.orchestration.steady import steadily
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.server import problems
from aaiclick.server.gate import Gate
from aaiclick.server.problems import Problem
from aaiclick.server.routes import ALL
from aaiclick.server.routing import GuardedRoute
from aaiclick.server.service import Service
from aaiclick.server.ui.app import create_pages, known_parts
from aaiclick.server.ui.door import Door
from aaiclick.server.ui.house import House
from aaiclick.server.ui.rendering import compile_all, compile_first
from aaiclick.settings import get_logs_dir
from aaiclick.store import idempotency

log = logging.getLogger("aaiclick.server")

FORGET_SECONDS = 600.0

DESCRIPTION = """
Durable data processing over HTTP. Ids are strings. Lists come in pages: pass `next` as `cursor`. Errors are problems
(RFC 9457) with a stable `code`. The organisation is that of the credential; what is another's does not exist.
"""


def create_app(service: Service) -> FastAPI:
    """The API and the pages over a service, which starts and stops with them."""
    house = House(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        await service.start()
        compile_first()
        beside = (service.live.run, service.bell.run, service.routing.run, service.lending.run, house.history.run)
        work = [asyncio.create_task(steadily(each)) for each in (*beside, compile_all)]
        work += [asyncio.create_task(steadily(each, service)) for each in (_forget, _tidy)]
        work.append(asyncio.create_task(service.analysis.warm_up()))
        work.append(asyncio.create_task(_prepare_openapi(app)))
        try:
            with use_pool(service.analysis):
                yield
        finally:
            for task in work:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await service.stop()
            if (tracing := get_tracing()) is not None:
                await asyncio.to_thread(tracing.close)

    app = FastAPI(
        title="aaiclick",
        version=__version__,
        description=DESCRIPTION.strip(),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.router.route_class = GuardedRoute
    for routes in ALL:
        routes.install(app)
    problems.install(app)
    app.add_middleware(Door, pages=create_pages(house), known=known_parts())
    app.add_middleware(Gate, body_bytes=service.settings.server_body_bytes)
    _describe(app)
    return app


async def _prepare_openapi(app: FastAPI) -> None:
    """Build the OpenAPI document, which takes half a second, before the first request for it."""
    await asyncio.to_thread(app.openapi)


async def _tidy(service: Service) -> None:
    await tidy_logs.run(get_logs_dir(service.settings), keep_seconds=service.settings.retention_seconds)


async def _forget(service: Service) -> None:
    """Now and then drop answers to Idempotency-Keys that nobody will send again."""
    while True:
        await asyncio.sleep(FORGET_SECONDS)
        try:
            async with service.owner() as connection:
                await idempotency.forget(connection)
        except Exception as error:
            if problems.translate(error) is None:
                raise
            log.warning("old answers are still kept: PostgreSQL is away")


def _describe(app: FastAPI) -> None:
    """The OpenAPI document: made once, with the credential and the form of errors."""
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(
                get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            )
            components = document.setdefault("components", {})
            components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema(
                ref_template="#/components/schemas/{model}"
            )
            components["securitySchemes"] = {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key (`aai_…`) or an OIDC token"}
            }
        return document

    app.openapi = openapi
