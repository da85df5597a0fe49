"""Signing in and out, and the theme."""

from __future__ import annotations

import logging
from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.server.permissions import Permission
from aaiclick.server.problems import CredentialError, request_id_of
from aaiclick.server.ui import sessions
from aaiclick.server.ui.code_flow import CodeFlow, Errand
from aaiclick.server.ui.routing import THEMES, NoSuchPageError, Pages, Visit, local

log = logging.getLogger("aaiclick.server")

pages = Pages()

YEAR = 365 * 86_400
ERRAND = "aaiclick_errand"
ERRAND_SECONDS = 600
AGAIN = "Sign in again. If it happens again, ask who runs this service."


class SignInError(UnauthorisedError):
    """Nobody was signed in by the identity provider; the page says why."""

    def __init__(self, what: str, *, remedy: str, status: HTTPStatus = HTTPStatus.UNAUTHORIZED) -> None:
        super().__init__(what, remedy=remedy)
        self.status = status


@pages.get("/sign-in", Permission.PUBLIC)
async def ask(visit: Visit) -> Response:
    if visit.principal is not None:
        return visit.go("/")
    return _form(visit, visit.query("next", "/"))


@pages.post("/sign-in", Permission.PUBLIC)
async def sign_in(visit: Visit) -> Response:
    credential = visit.sent("credential").strip()
    try:
        token = await sessions.sign_in(visit.house, credential, request_id_of(visit.request))
    except CredentialError as error:
        return _form(visit, visit.sent("next", "/"), wrong=f"{error.what} {error.remedy}")
    response = visit.go(local(visit.sent("next", "/")))
    sessions.set_token(visit.request, response, token)
    return response


def _form(visit: Visit, place: str, wrong: str = "") -> Response:
    status = HTTPStatus.UNAUTHORIZED if wrong else HTTPStatus.OK
    flow, tokens = visit.house.code_flow, visit.service.identity.provider is not None
    provider = None if flow is None else flow.name
    return visit.page("sign_in.html", status, next=local(place), wrong=wrong, tokens=tokens, provider=provider)


@pages.get("/sign-in/provider", Permission.PUBLIC)
async def leave(visit: Visit) -> Response:
    """Send the browser to the identity provider."""
    if visit.principal is not None:
        return visit.go(visit.query("next", "/"))
    errand = Errand.new(local(visit.query("next", "/")))
    try:
        address = await _flow(visit).address(errand, _callback(visit))
    except UnreachableError as error:
        return _failed(visit, _silent(error))
    response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    response.set_cookie(
        ERRAND,
        str(errand),
        max_age=ERRAND_SECONDS,
        path="/sign-in",
        httponly=True,
        samesite="lax",
        secure=visit.request.url.scheme == "https",
    )
    return response


@pages.get("/sign-in/callback", Permission.PUBLIC)
async def come_back(visit: Visit) -> Response:
    """Take the identity provider's answer, once, from the browser that asked for it."""
    try:
        token, place = await _answer(visit)
    except SignInError as error:
        response = _failed(visit, error)
    else:
        response = visit.go(place)
        sessions.set_token(visit.request, response, token)
    response.delete_cookie(ERRAND, path="/sign-in")
    return response


async def _answer(visit: Visit) -> tuple[str, str]:
    """A new session, and where to go."""
    flow, errand = _flow(visit), Errand.read(visit.request.cookies.get(ERRAND, ""))
    if errand is None or not errand.is_answered_by(visit.query("state")):
        raise SignInError(
            "This answer is not to a question of this browser.",
            remedy="It was opened too late, twice, or in another window. Sign in again.",
        )
    issuer = visit.request.query_params.get("iss")
    if issuer is not None and not flow.provider.is_issuer(issuer):
        raise SignInError("Another identity provider answered than the one that was asked.", remedy=AGAIN)
    if not visit.query("code"):
        refused = visit.query("error") == "access_denied"
        what = "The identity provider did not let you in." if refused else "The identity provider reports an error."
        raise SignInError(what, remedy="Sign in there with another account, or ask who runs it.")
    try:
        subject = await flow.subject(errand, visit.request.query_params["code"], _callback(visit))
    except UnreachableError as error:
        raise _silent(error) from error
    if subject is None:
        raise SignInError("The identity provider's answer does not hold.", remedy=AGAIN)
    token = await sessions.sign_in_subject(visit.house, subject, request_id_of(visit.request))
    if token is None:
        raise SignInError(
            f"You are {subject!r} to the identity provider, and nobody here.",
            remedy="Ask an admin to add you with this subject: Admin, Users.",
        )
    return token, local(errand.place)


def _failed(visit: Visit, error: SignInError) -> Response:
    return visit.page("sign_in_failed.html", error.status, what=error.what, remedy=error.remedy)


def _flow(visit: Visit) -> CodeFlow:
    if visit.house.code_flow is None:
        raise NoSuchPageError(
            "Nobody signs in by an identity provider here.", remedy="AAICLICK_OIDC_CLIENT_ID makes the server do so."
        )
    return visit.house.code_flow


def _callback(visit: Visit) -> str:
    """Where the provider sends the browser back to; it knows this address and takes no other."""
    ours = visit.service.settings.server_public_url or str(visit.request.base_url).rstrip("/")
    return f"{ours}/sign-in/callback"


def _silent(error: UnreachableError) -> SignInError:
    log.warning("nobody can sign in: %s", error.what)
    return SignInError(
        "The identity provider does not answer.",
        remedy="Try again in a moment; an API key works meanwhile.",
        status=HTTPStatus.SERVICE_UNAVAILABLE,
    )


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
