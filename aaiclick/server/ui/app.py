"""The pages as one ASGI application, with pages for errors too."""

from __future__ import annotations

import logging
from http import HTTPStatus

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from aaiclick.errors import AaiclickError
from aaiclick.server.problems import CredentialError, kind_of, translate
from aaiclick.server.ui import static
from aaiclick.server.ui.door import first_part
from aaiclick.server.ui.house import House
from aaiclick.server.ui.pages import ALL
from aaiclick.server.ui.routing import NoSuchPageError, Visit, dressed, route_of
from aaiclick.server.ui.sessions import new_token, token_of

log = logging.getLogger("aaiclick.server")

AWAY = "A database of this service does not answer."
ELSEWHERE = "It may have been removed, or belong to another organisation: look for it in the lists, or search."
OWN = "The service met an error of its own."


def create_pages(house: House) -> Starlette:
    """All pages."""
    routes = [route_of(declared, house) for pages in ALL for declared in pages.declared]

    async def on_error(request: Request, error: Exception) -> Response:
        known = translate(error)
        if known is None:
            raise error
        kind = kind_of(known)
        if kind.secret:
            log.error("request %s: %s", request.state.request_id, known)
            return _explain(request, kind.status, AWAY if kind.status == HTTPStatus.SERVICE_UNAVAILABLE else OWN, "")
        of_pages = kind.status != HTTPStatus.NOT_FOUND or isinstance(known, NoSuchPageError)
        return _explain(request, kind.status, known.what, known.remedy if of_pages else ELSEWHERE)

    async def on_credential(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return _explain(request, HTTPStatus.UNAUTHORIZED, "You are not signed in.", "Sign in and try again.")

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        status = HTTPStatus(error.status_code)
        words = "There is nothing at this address." if status == HTTPStatus.NOT_FOUND else f"{status.phrase}."
        return _explain(request, status, words, "")

    async def on_defect(request: Request, error: Exception) -> Response:  # noqa: ARG001  (the gate logs it)
        return _explain(request, HTTPStatus.INTERNAL_SERVER_ERROR, OWN, "")

    def _explain(request: Request, status: HTTPStatus, what: str, remedy: str) -> Response:
        principal = getattr(request.state, "principal", None)
        visit = Visit(request, house, principal, token_of(request) or new_token())
        values = {"status": int(status), "what": what, "remedy": remedy, "request_id": request.state.request_id}
        return dressed(visit, visit.page("error.html", status, **values))

    return Starlette(
        routes=[*routes, static.route()],
        exception_handlers={
            CredentialError: on_credential,
            AaiclickError: on_error,
            asyncpg.PostgresError: on_error,
            asyncpg.InterfaceError: on_error,
            ConnectionError: on_error,
            TimeoutError: on_error,
            UnicodeError: on_error,
            HTTPException: on_http,
            Exception: on_defect,
        },
    )


def known_parts() -> frozenset[str]:
    """First parts of the addresses of pages."""
    return frozenset({first_part(declared.path) for pages in ALL for declared in pages.declared} | {"static"})
