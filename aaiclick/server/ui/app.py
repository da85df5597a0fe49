"""ASGI application of the web UI, including its error pages."""

from __future__ import annotations

import logging
from http import HTTPStatus

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from aaiclick.errors import AaiclickError
from aaiclick.server.problem_responses import CredentialError, problem_type_of, translate_error
from aaiclick.server.ui import static_files
from aaiclick.server.ui.dispatch import path_prefix
from aaiclick.server.ui.pages import ALL_PAGES
from aaiclick.server.ui.routing import PageNotFoundError, PageRequest, build_route, with_security_headers
from aaiclick.server.ui.sessions import new_token, read_session_token
from aaiclick.server.ui.state import UiState

log = logging.getLogger("aaiclick.server")

DATABASE_UNREACHABLE = "A database of this service is unreachable."
NOT_FOUND_REMEDY = "It may have been deleted, or it belongs to another organisation. Use the lists or the search."
INTERNAL_ERROR = "Internal server error."


def create_pages(ui_state: UiState) -> Starlette:
    """Build the Starlette application with all pages, static files and error handlers."""
    routes = [build_route(page_route, ui_state) for pages in ALL_PAGES for page_route in pages.routes]

    async def render_known_error(request: Request, error: Exception) -> Response:
        translated = translate_error(error)
        if translated is None:
            raise error
        problem_kind = problem_type_of(translated)
        if problem_kind.secret:
            log.error("request %s: %s", request.state.request_id, translated)
            return render_error_page(
                request,
                problem_kind.status,
                DATABASE_UNREACHABLE if problem_kind.status == HTTPStatus.SERVICE_UNAVAILABLE else INTERNAL_ERROR,
                "",
            )
        has_page_remedy = problem_kind.status != HTTPStatus.NOT_FOUND or isinstance(translated, PageNotFoundError)
        return render_error_page(
            request, problem_kind.status, translated.what, translated.remedy if has_page_remedy else NOT_FOUND_REMEDY
        )

    async def render_not_signed_in(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return render_error_page(request, HTTPStatus.UNAUTHORIZED, "You are not signed in.", "Sign in and try again.")

    async def render_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        status = HTTPStatus(error.status_code)
        what = "Page not found." if status == HTTPStatus.NOT_FOUND else f"{status.phrase}."
        return render_error_page(request, status, what, "")

    async def render_unexpected_error(request: Request, error: Exception) -> Response:  # noqa: ARG001  (the middleware logs it)
        return render_error_page(request, HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR, "")

    def render_error_page(request: Request, status: HTTPStatus, what: str, remedy: str) -> Response:
        actor = getattr(request.state, "actor", None)
        page = PageRequest(request, ui_state, actor, read_session_token(request) or new_token())
        values = {"status": int(status), "what": what, "remedy": remedy, "request_id": request.state.request_id}
        return with_security_headers(page, page.render("error.html", status, **values))

    return Starlette(
        routes=[*routes, static_files.static_route()],
        exception_handlers={
            CredentialError: render_not_signed_in,
            AaiclickError: render_known_error,
            asyncpg.PostgresError: render_known_error,
            asyncpg.InterfaceError: render_known_error,
            ConnectionError: render_known_error,
            TimeoutError: render_known_error,
            UnicodeError: render_known_error,
            HTTPException: render_http_error,
            Exception: render_unexpected_error,
        },
    )


def page_prefixes() -> frozenset[str]:
    """Return the first path segments that belong to pages."""
    return frozenset({path_prefix(page_route.path) for pages in ALL_PAGES for page_route in pages.routes} | {"static"})
