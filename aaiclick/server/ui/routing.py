"""Registration of pages, and the permission and CSRF checks before their handlers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlencode

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from aaiclick.catalog.sql_yaml_analysis import current_client
from aaiclick.errors import ForbiddenError, NotFoundError
from aaiclick.operations.actor import Actor, Permission
from aaiclick.server.app_state import AppState
from aaiclick.server.cache import stale_seconds
from aaiclick.server.problem_responses import MalformedError
from aaiclick.server.routing import RequestContext
from aaiclick.server.ui import flash, sessions
from aaiclick.server.ui.flash import FlashMessage
from aaiclick.server.ui.state import UiState
from aaiclick.server.ui.templating import render_template

MAX_FORM_FIELDS = 2_000
THEMES = ("auto", "light", "dark")

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class PageNotFoundError(NotFoundError):
    """The subject of a page does not exist; the remedy is written for users of the web UI.

    The remedies of other NotFoundErrors are for API and CLI users, so the error page replaces them.
    """


@dataclass
class PageRequest:
    """One request for a page: the caller, query parameters, form fields, and methods to build the response."""

    request: Request
    ui_state: UiState
    actor: Actor | None
    session_token: str
    form: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @property
    def app_state(self) -> AppState:
        return self.ui_state.app_state

    @property
    def call(self) -> RequestContext:
        """The request as the API's handlers take it."""
        return RequestContext(self.app_state, self.caller, self.request.state.request_id)

    @property
    def caller(self) -> Actor:
        assert self.actor is not None  # noqa: S101  (checked before the handler runs)
        return self.actor

    def has_permission(self, permission: str) -> bool:
        return self.actor is not None and Permission(permission) in self.actor.permissions

    @property
    def theme(self) -> str:
        theme = self.request.cookies.get("aaiclick_theme", "auto")
        return theme if theme in THEMES else "auto"

    @property
    def is_refresh(self) -> bool:
        """Whether the live-update script sent this request."""
        return "x-refresh" in self.request.headers

    @property
    def current_url(self) -> str:
        """Path and query of this page."""
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")

    def query_param(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)[:500]

    def form_field(self, name: str, default: str = "") -> str:
        """Return the first value of a form field."""
        return self.form.get(name, [default])[0]

    @property
    def offset(self) -> int:
        """Number of rows to skip in a list."""
        text = self.query_param("offset")
        return min(int(text), 2**53) if text.isdecimal() else 0

    def with_query(self, **changes: str | None) -> str:
        """Return this page's URL with changed query parameters; None removes one."""
        params = {name: value for name, value in self.request.query_params.items() if name not in changes}
        params |= {name: value for name, value in changes.items() if value}
        return self.request.url.path + (f"?{urlencode(params)}" if params else "")

    def render(self, template: str, code: int = HTTPStatus.OK, /, **values: object) -> Response:
        flash_message = None if self.is_refresh else flash.read_cookie(self.request.cookies.get(flash.COOKIE))
        text = render_template(
            template,
            page=self,
            csrf=sessions.derive_csrf_token(self.session_token),
            flash=flash_message,
            current_url=self.current_url,
            refresh_interval=self.ui_state.refresh_interval.seconds,
            stale_seconds=stale_seconds(),
            **values,
        )
        response = Response(text, code, media_type="text/html")
        if flash_message is not None:
            response.delete_cookie(flash.COOKIE)
        return response

    def redirect_back(self, text: str, *, is_error: bool = False, undo: str | None = None, **fields: str) -> Response:
        """Redirect to the page that sent the form, with a flash message."""
        return self.redirect(self.form_field("back", "/"), text, is_error=is_error, undo=undo, **fields)

    def redirect(
        self, url: str, text: str = "", *, is_error: bool = False, undo: str | None = None, **fields: str
    ) -> Response:
        response = RedirectResponse(local_url(url), HTTPStatus.SEE_OTHER)
        if text:
            FlashMessage(text, "bad" if is_error else "good", undo, fields).set_cookie(response)
        return response


def local_url(url: str) -> str:
    """Return the URL if it is a path on this host, else "/" (prevents open redirects)."""
    is_local = url.startswith("/") and url[1:2] not in ("/", "\\") and not any(ord(c) < 32 for c in url)
    return url if is_local else "/"


class IdConvertor(Convertor[int]):
    """`{name:id}` in a path: a number of up to 19 digits. Python refuses to convert very long ones."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("id", IdConvertor())

Handler = Callable[[PageRequest], Awaitable[Response]]


@dataclass(frozen=True)
class PageRoute:
    method: str
    path: str
    permission: Permission
    handler: Handler


@dataclass
class Pages:
    """Page routes of one module."""

    routes: list[PageRoute] = field(default_factory=list[PageRoute])

    def get(self, path: str, permission: Permission) -> Callable[[Handler], Handler]:
        return self._add_route("GET", path, permission)

    def post(self, path: str, permission: Permission) -> Callable[[Handler], Handler]:
        return self._add_route("POST", path, permission)

    def _add_route(self, method: str, path: str, permission: Permission) -> Callable[[Handler], Handler]:
        def register_handler(handler: Handler) -> Handler:
            self.routes.append(PageRoute(method, path, permission, handler))
            return handler

        return register_handler


def build_route(page_route: PageRoute, ui_state: UiState) -> Route:
    """Build the Starlette route of a page, with its checks and response headers."""

    async def endpoint(request: Request) -> Response:
        request.scope["route"] = page_route  # the access log has its path
        started = time.monotonic()
        page = await load_request(request, ui_state)
        response = await _check_and_handle(page_route, page)
        if page_route.method == "GET" and response.media_type == "text/html":
            ui_state.refresh_interval.record_page_time(time.monotonic() - started)
        return with_security_headers(page, response)

    return Route(page_route.path, endpoint, methods=[page_route.method])


async def load_request(request: Request, ui_state: UiState) -> PageRequest:
    actor = await sessions.find_actor(ui_state.app_state, request)
    request.state.actor = actor
    if actor is not None:
        current_client.set(str(actor.org_id))
    token = sessions.read_session_token(request)
    return PageRequest(request, ui_state, actor, token or sessions.new_token())


async def _check_and_handle(page_route: PageRoute, page: PageRequest) -> Response:
    if page_route.permission is not Permission.PUBLIC and page.actor is None:
        back = page.current_url if page_route.method == "GET" else "/"
        query = f"?{urlencode({'next': back})}" if back != "/" else ""
        return RedirectResponse(f"/sign-in{query}", HTTPStatus.SEE_OTHER)
    if page_route.method == "POST":
        page.form = _parse_form(await page.request.body())
        if not sessions.has_valid_csrf_token(
            page.request, sessions.read_session_token(page.request), page.form_field("csrf")
        ):
            raise ForbiddenError("Invalid or expired form.", remedy="Reload the page and try again.")
    if page_route.permission is not Permission.PUBLIC and not page.has_permission(page_route.permission):
        raise ForbiddenError(
            f"Permission {page_route.permission.value!r} is required.",
            remedy="Sign in with an API key that has it; an admin of your organisation can create one.",
        )
    response = await page_route.handler(page)
    if page_route.method == "POST":
        page.ui_state.cache.clear()
    return response


def _parse_form(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:  # not UTF-8, or too many fields
        raise MalformedError("Malformed form.", remedy="Reload the page and try again.") from None


def with_security_headers(page: PageRequest, response: Response) -> Response:
    """Add the security headers, the refresh interval and, for new browsers, the session cookie."""
    headers = response.headers
    headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "same-origin"  # the CSRF check needs the referrer of forms
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["X-Refresh-Interval"] = f"{page.ui_state.refresh_interval.seconds:.1f}"
    headers["X-Stale-Seconds"] = f"{stale_seconds():.1f}"
    if sessions.read_session_token(page.request) is None and "set-cookie" not in headers:
        sessions.set_session_cookie(page.request, response, page.session_token)
    return response
