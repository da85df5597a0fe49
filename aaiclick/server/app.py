"""The FastAPI application: API routes, web UI, middleware and background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from aaiclick._version import __version__
from aaiclick.catalog.sql_yaml_analysis import use_pool
from aaiclick.orchestration.background_coroutines import run_forever
from aaiclick.orchestration.loops import log_retention
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.server import problem_responses
from aaiclick.server.app_state import AppState
from aaiclick.server.mcp import McpTools
from aaiclick.server.middleware import RequestMiddleware
from aaiclick.server.problem_responses import Problem
from aaiclick.server.routes import ALL
from aaiclick.server.routing import GuardedRoute
from aaiclick.server.ui.app import create_pages, page_prefixes
from aaiclick.server.ui.dispatch import PageDispatcher
from aaiclick.server.ui.state import UiState
from aaiclick.server.ui.templating import compile_all, compile_first
from aaiclick.settings import get_logs_dir
from aaiclick.store.tenancy import idempotency

log = logging.getLogger("aaiclick.server")

PRUNE_SECONDS = 600.0

DESCRIPTION = """
Durable data processing over HTTP. Ids are strings. Lists come in pages: pass `next` as `cursor`. Errors are problems
(RFC 9457) with a stable `code`. The organisation is that of the credential; resources of other organisations are not
found.
"""


def create_app(app_state: AppState) -> FastAPI:
    """Build the application; its lifespan starts and stops `app_state`."""
    ui_state = UiState(app_state)
    mcp_tools = McpTools(app_state.settings.mcp_changes_per_hour)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        await app_state.start()
        compile_first()
        loops = (
            app_state.change_feed.run,
            app_state.work_notifier.run,
            app_state.event_router.run,
            app_state.notification_sender.run,
            app_state.worker_credentials.run,
            ui_state.history.run,
            compile_all,
        )
        tasks = [asyncio.create_task(run_forever(loop)) for loop in loops]
        tasks += [asyncio.create_task(run_forever(loop, app_state)) for loop in (_prune_idempotency_keys, _prune_logs)]
        tasks.append(asyncio.create_task(app_state.analysis_pool.warm_up()))
        tasks.append(asyncio.create_task(_prepare_openapi(app)))
        try:
            with use_pool(app_state.analysis_pool):
                yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            mcp_tools.close()
            await app_state.stop()
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
    app.state.app_state = app_state
    app.state.mcp_tools = mcp_tools
    app.router.route_class = GuardedRoute
    for routes in ALL:
        routes.install(app)
    problem_responses.install_handlers(app)
    app.add_middleware(PageDispatcher, pages=create_pages(ui_state), page_prefixes=page_prefixes())
    app.add_middleware(RequestMiddleware, body_bytes=app_state.settings.server_body_bytes)
    _install_openapi(app)
    return app


async def _prepare_openapi(app: FastAPI) -> None:
    """Build the OpenAPI document before the first request for it, since that takes half a second."""
    await asyncio.to_thread(app.openapi)


async def _prune_logs(app_state: AppState) -> None:
    await log_retention.run(get_logs_dir(app_state.settings), keep_seconds=app_state.settings.retention_seconds)


async def _prune_idempotency_keys(app_state: AppState) -> None:
    """Delete expired Idempotency-Keys periodically."""
    while True:
        await asyncio.sleep(PRUNE_SECONDS)
        try:
            async with app_state.owner_connection() as connection:
                await idempotency.delete_old_responses(connection)
        except Exception as error:
            if problem_responses.translate_error(error) is None:
                raise
            log.warning("expired idempotency keys are not deleted: PostgreSQL is unreachable")


def _install_openapi(app: FastAPI) -> None:
    """Serve an OpenAPI document that is built once, with the security scheme and the error schema."""
    document: dict[str, Any] = {}

    def openapi() -> dict[str, object]:
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
