"""How pages are declared, and what each request for one passes: its permission, and for forms where they come from."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from aaiclick.errors import ForbiddenError, NotFoundError
from aaiclick.server.analysis_pool import current_client
from aaiclick.server.permissions import Permission, Principal
from aaiclick.server.problems import MalformedError
from aaiclick.server.routing import Call
from aaiclick.server.service import Service
from aaiclick.server.ui import said, sessions
from aaiclick.server.ui.house import House
from aaiclick.server.ui.kept import seconds_to_news
from aaiclick.server.ui.rendering import render
from aaiclick.server.ui.said import Said

MOST_FIELDS = 2_000
THEMES = ("auto", "light", "dark")

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class NoSuchPageError(NotFoundError):
    """What a page is about is not there, and its remedy is for whoever looks at pages.

    The remedy of any other NotFoundError is for programs or the command line: pages say where to look instead.
    """


@dataclass
class Visit:
    """One request for a page: who asks, what was sent, and how to answer."""

    request: Request
    house: House
    principal: Principal | None
    token: str
    form: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @property
    def service(self) -> Service:
        return self.house.service

    @property
    def call(self) -> Call:
        """The same request as the functions of the API take it."""
        return Call(self.service, self.who, self.request.state.request_id)

    @property
    def who(self) -> Principal:
        assert self.principal is not None  # noqa: S101  (the guard let it through)
        return self.principal

    def may(self, permission: str) -> bool:
        return self.principal is not None and Permission(permission) in self.principal.permissions

    @property
    def theme(self) -> str:
        theme = self.request.cookies.get("aaiclick_theme", "auto")
        return theme if theme in THEMES else "auto"

    @property
    def is_refresh(self) -> bool:
        """Whether a script asks, to bring the page that it is on up to date."""
        return "x-refresh" in self.request.headers

    @property
    def here(self) -> str:
        """The address of this page, without the host."""
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")

    def query(self, name: str, otherwise: str = "") -> str:
        return self.request.query_params.get(name, otherwise)[:500]

    def sent(self, name: str, otherwise: str = "") -> str:
        """A field of the form."""
        return self.form.get(name, [otherwise])[0]

    @property
    def offset(self) -> int:
        """How many rows of a list come before this page of it."""
        text = self.query("offset")
        return min(int(text), 2**53) if text.isdecimal() else 0

    def with_query(self, **changes: str | None) -> str:
        """The address of this page with other parameters; None takes one away."""
        kept = {name: value for name, value in self.request.query_params.items() if name not in changes}
        kept |= {name: value for name, value in changes.items() if value}
        return self.request.url.path + (f"?{urlencode(kept)}" if kept else "")

    def page(self, template: str, code: int = HTTPStatus.OK, /, **values: Any) -> Response:
        message = None if self.is_refresh else said.read(self.request.cookies.get(said.COOKIE))
        text = render(
            template,
            visit=self,
            csrf=sessions.csrf_of(self.token),
            said=message,
            here=self.here,
            pace=self.house.pace.seconds,
            again=seconds_to_news(),
            **values,
        )
        response = Response(text, code, media_type="text/html")
        if message is not None:
            response.delete_cookie(said.COOKIE)
        return response

    def back(self, words: str, *, bad: bool = False, undo: str | None = None, **fields: str) -> Response:
        """After a form: to where it was sent from, with what is to be said."""
        return self.go(self.sent("back", "/"), words, bad=bad, undo=undo, **fields)

    def go(self, place: str, words: str = "", *, bad: bool = False, undo: str | None = None, **fields: str) -> Response:
        response = RedirectResponse(local(place), HTTPStatus.SEE_OTHER)
        if words:
            Said(words, "bad" if bad else "good", undo, fields).write(response)
        return response


def local(place: str) -> str:
    """An address of ours, whatever was asked for: no other site, and nothing that a browser reads as one."""
    fine = place.startswith("/") and place[1:2] not in ("/", "\\") and not any(ord(c) < 32 for c in place)
    return place if fine else "/"


Handler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True)
class Declared:
    method: str
    path: str
    permission: Permission
    handler: Handler


@dataclass
class Pages:
    """The pages of one subject."""

    declared: list[Declared] = field(default_factory=list[Declared])

    def get(self, path: str, permission: Permission) -> Callable[[Handler], Handler]:
        return self._declare("GET", path, permission)

    def post(self, path: str, permission: Permission) -> Callable[[Handler], Handler]:
        return self._declare("POST", path, permission)

    def _declare(self, method: str, path: str, permission: Permission) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            self.declared.append(Declared(method, path, permission, handler))
            return handler

        return declare


def route_of(declared: Declared, house: House) -> Route:
    """The route that lets a request through to a page if it may."""

    async def endpoint(request: Request) -> Response:
        request.scope["route"] = declared  # the access log has its path
        started = time.monotonic()
        visit = await welcome(request, house)
        response = await _guarded(declared, visit)
        if declared.method == "GET" and response.media_type == "text/html":
            house.pace.took(time.monotonic() - started)
        return dressed(visit, response)

    return Route(declared.path, endpoint, methods=[declared.method])


async def welcome(request: Request, house: House) -> Visit:
    principal = await sessions.find_principal(house.service, request)
    request.state.principal = principal
    if principal is not None:
        current_client.set(str(principal.org_id))
    token = sessions.token_of(request)
    return Visit(request, house, principal, token or sessions.new_token())


async def _guarded(declared: Declared, visit: Visit) -> Response:
    if declared.permission is not Permission.PUBLIC and visit.principal is None:
        back = visit.here if declared.method == "GET" else "/"
        query = f"?{urlencode({'next': back})}" if back != "/" else ""
        return RedirectResponse(f"/sign-in{query}", HTTPStatus.SEE_OTHER)
    if declared.method == "POST":
        visit.form = _parse_form(await visit.request.body())
        if not sessions.is_ours(visit.request, sessions.token_of(visit.request), visit.sent("csrf")):
            raise ForbiddenError("This form is not from this session.", remedy="Reload the page and try again.")
    if declared.permission is not Permission.PUBLIC and not visit.may(declared.permission):
        raise ForbiddenError(
            f"This needs the permission {declared.permission.value!r}, which you do not have.",
            remedy="Sign in with a key that has it; an admin of your organisation can make one.",
        )
    response = await declared.handler(visit)
    if declared.method == "POST":
        visit.house.kept.clear()
    return response


def _parse_form(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:  # not UTF-8, or too many fields
        raise MalformedError("The form cannot be read.", remedy="Reload the page and try again.") from None


def dressed(visit: Visit, response: Response) -> Response:
    """With everything that every answer of ours has."""
    headers = response.headers
    headers["Content-Security-Policy"] = POLICY
    headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "same-origin"  # with none, a browser does not say where a form comes from
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["X-Pace"] = f"{visit.house.pace.seconds:.1f}"
    headers["X-Again"] = f"{seconds_to_news():.1f}"
    if sessions.token_of(visit.request) is None and "set-cookie" not in headers:
        sessions.set_token(visit.request, response, visit.token)
    return response
