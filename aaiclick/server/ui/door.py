"""Which requests are for pages and which for the API: they share one address."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

API = frozenset({"v1", "internal", "health", "metrics", "openapi.json"})


class Door:
    """Leads a request to the pages or to the API."""

    def __init__(self, app: ASGIApp, *, pages: ASGIApp, known: frozenset[str]) -> None:
        self._app = app
        self._pages = pages
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_page(scope):
            await self._pages(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_page(self, scope: Scope) -> bool:
        """A browser that asks for what nobody has gets a page that says so; a program gets a problem."""
        first = first_part(scope["path"])
        if first in API or first in self._known:
            return first in self._known
        return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def takes_forms(path: str) -> bool:
    """Whether forms may be sent here: to pages, which check where one comes from, and never to the API."""
    return first_part(path) not in API


def first_part(path: str) -> str:
    return path.lstrip("/").partition("/")[0]
