"""Signing in and out, and the theme."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from aaiclick.server.permissions import Permission
from aaiclick.server.problems import CredentialError
from aaiclick.server.ui import sessions
from aaiclick.server.ui.routing import THEMES, Pages, Visit, local

pages = Pages()

YEAR = 365 * 86_400


@pages.get("/sign-in", Permission.PUBLIC)
async def ask(visit: Visit) -> Response:
    if visit.principal is not None:
        return visit.go("/")
    return _form(visit, visit.query("next", "/"))


@pages.post("/sign-in", Permission.PUBLIC)
async def sign_in(visit: Visit) -> Response:
    credential = visit.sent("credential").strip()
    try:
        token = await sessions.sign_in(visit.service, credential)
    except CredentialError as error:
        return _form(visit, visit.sent("next", "/"), wrong=f"{error.what} {error.remedy}")
    response = visit.go(local(visit.sent("next", "/")))
    sessions.set_token(visit.request, response, token)
    return response


def _form(visit: Visit, place: str, wrong: str = "") -> Response:
    status = HTTPStatus.UNAUTHORIZED if wrong else HTTPStatus.OK
    oidc = visit.service.settings.oidc_issuer is not None
    return visit.page("sign_in.html", status, next=local(place), wrong=wrong, oidc=oidc)


@pages.post("/sign-out", Permission.PUBLIC)
async def sign_out(visit: Visit) -> Response:
    await sessions.sign_out(visit.service, visit.request)
    response = visit.go("/sign-in")
    response.delete_cookie(sessions.COOKIE)
    return response


@pages.post("/theme", Permission.PUBLIC)
async def theme(visit: Visit) -> Response:
    chosen = visit.sent("theme")
    response = visit.go(visit.sent("back", "/"))
    response.set_cookie("aaiclick_theme", chosen if chosen in THEMES else "auto", max_age=YEAR, samesite="lax")
    return response
