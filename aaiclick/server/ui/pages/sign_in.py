"""Sign-in and sign-out pages, and the theme setting."""

from __future__ import annotations

import logging
from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.operations.actor import Permission
from aaiclick.server.problem_responses import CredentialError, request_id_of
from aaiclick.server.ui import sessions
from aaiclick.server.ui.oidc_login import AuthorizationCodeFlow, LoginState
from aaiclick.server.ui.routing import THEMES, PageNotFoundError, PageRequest, Pages, local_url

log = logging.getLogger("aaiclick.server")

pages = Pages()

THEME_SECONDS = 365 * 86_400
LOGIN_COOKIE = "aaiclick_login"
LOGIN_SECONDS = 600
RETRY_REMEDY = "Sign in again. If it fails again, contact your administrator."


class SignInError(UnauthorisedError):
    """The login at the identity provider failed."""

    def __init__(self, what: str, *, remedy: str, status: HTTPStatus = HTTPStatus.UNAUTHORIZED) -> None:
        super().__init__(what, remedy=remedy)
        self.status = status


@pages.get("/sign-in", Permission.PUBLIC)
async def show_form(page: PageRequest) -> Response:
    if page.actor is not None:
        return page.redirect("/")
    return _render_form(page, page.query_param("next", "/"))


@pages.post("/sign-in", Permission.PUBLIC)
async def sign_in(page: PageRequest) -> Response:
    credential = page.form_field("credential").strip()
    try:
        token = await sessions.sign_in(page.ui_state, credential, request_id_of(page.request))
    except CredentialError as error:
        return _render_form(page, page.form_field("next", "/"), error=f"{error.what} {error.remedy}")
    response = page.redirect(local_url(page.form_field("next", "/")))
    sessions.set_session_cookie(page.request, response, token)
    return response


def _render_form(page: PageRequest, return_url: str, error: str = "") -> Response:
    status = HTTPStatus.UNAUTHORIZED if error else HTTPStatus.OK
    flow, tokens = page.ui_state.code_flow, page.app_state.authenticator.provider is not None
    provider = None if flow is None else flow.provider_name
    return page.render(
        "sign_in.html", status, next=local_url(return_url), error=error, tokens=tokens, provider=provider
    )


@pages.get("/sign-in/provider", Permission.PUBLIC)
async def start_login(page: PageRequest) -> Response:
    """Redirect the browser to the identity provider."""
    if page.actor is not None:
        return page.redirect(page.query_param("next", "/"))
    login = LoginState.create(local_url(page.query_param("next", "/")))
    try:
        address = await _require_code_flow(page).authorization_url(login, _callback_url(page))
    except UnreachableError as error:
        return _render_failure(page, _provider_unreachable(error))
    response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    response.set_cookie(
        LOGIN_COOKIE,
        str(login),
        max_age=LOGIN_SECONDS,
        path="/sign-in",
        httponly=True,
        samesite="lax",
        secure=page.request.url.scheme == "https",
    )
    return response


@pages.get("/sign-in/callback", Permission.PUBLIC)
async def finish_login(page: PageRequest) -> Response:
    """Handle the identity provider's redirect; the login cookie is valid once."""
    try:
        token, return_url = await _create_session(page)
    except SignInError as error:
        response = _render_failure(page, error)
    else:
        response = page.redirect(return_url)
        sessions.set_session_cookie(page.request, response, token)
    response.delete_cookie(LOGIN_COOKIE, path="/sign-in")
    return response


async def _create_session(page: PageRequest) -> tuple[str, str]:
    """Check the provider's response; return the session token and the URL to return to."""
    flow, login = _require_code_flow(page), LoginState.parse_cookie(page.request.cookies.get(LOGIN_COOKIE, ""))
    if login is None or not login.matches_state(page.query_param("state")):
        raise SignInError(
            "This sign-in was not started in this browser, or it has expired.",
            remedy="Sign in again.",
        )
    issuer = page.request.query_params.get("iss")
    if issuer is not None and not flow.provider.is_issuer(issuer):
        raise SignInError("The response came from an unexpected identity provider.", remedy=RETRY_REMEDY)
    if not page.query_param("code"):
        is_denied = page.query_param("error") == "access_denied"
        what = "The identity provider denied access." if is_denied else "The identity provider returned an error."
        raise SignInError(what, remedy="Try another account, or contact the provider's administrator.")
    try:
        subject = await flow.fetch_subject(login, page.request.query_params["code"], _callback_url(page))
    except UnreachableError as error:
        raise _provider_unreachable(error) from error
    if subject is None:
        raise SignInError("The identity provider returned an invalid token.", remedy=RETRY_REMEDY)
    token = await sessions.sign_in_subject(page.ui_state, subject, request_id_of(page.request))
    if token is None:
        raise SignInError(
            f"No user with the subject {subject!r} exists.",
            remedy="Ask an admin to add this subject under Admin, Users.",
        )
    return token, local_url(login.return_url)


def _render_failure(page: PageRequest, error: SignInError) -> Response:
    return page.render("sign_in_failed.html", error.status, what=error.what, remedy=error.remedy)


def _require_code_flow(page: PageRequest) -> AuthorizationCodeFlow:
    if page.ui_state.code_flow is None:
        raise PageNotFoundError(
            "Sign-in with an identity provider is not configured.", remedy="Set AAICLICK_OIDC_CLIENT_ID on the server."
        )
    return page.ui_state.code_flow


def _callback_url(page: PageRequest) -> str:
    """Return the redirect URI, which must be registered at the provider."""
    base_url = page.app_state.settings.server_public_url or str(page.request.base_url).rstrip("/")
    return f"{base_url}/sign-in/callback"


def _provider_unreachable(error: UnreachableError) -> SignInError:
    log.warning("sign-in with the identity provider failed: %s", error.what)
    return SignInError(
        "The identity provider is unreachable.",
        remedy="Try again in a moment, or sign in with an API key.",
        status=HTTPStatus.SERVICE_UNAVAILABLE,
    )


@pages.post("/sign-out", Permission.PUBLIC)
async def sign_out(page: PageRequest) -> Response:
    await sessions.sign_out(page.app_state, page.request)
    response = page.redirect("/sign-in")
    response.delete_cookie(sessions.COOKIE)
    return response


@pages.post("/theme", Permission.PUBLIC)
async def set_theme(page: PageRequest) -> Response:
    chosen = page.form_field("theme")
    response = page.redirect(page.form_field("back", "/"))
    response.set_cookie("aaiclick_theme", chosen if chosen in THEMES else "auto", max_age=THEME_SECONDS, samesite="lax")
    return response
