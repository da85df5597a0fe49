"""ASGI dispatch between the web UI and the API, which share one host and port."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

API_PREFIXES = frozenset({"v1", "internal", "health", "mcp", "metrics", "openapi.json"})


class PageDispatcher:
    """Send a request to the pages or to the API, by its first path segment."""

    def __init__(self, app: ASGIApp, *, pages: ASGIApp, page_prefixes: frozenset[str]) -> None:
        self._app = app
        self._pages = pages
        self._page_prefixes = page_prefixes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_page(scope):
            await self._pages(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_page(self, scope: Scope) -> bool:
        """Whether the pages handle a request; unknown paths get an HTML error page if the client accepts HTML."""
        prefix = path_prefix(scope["path"])
        if prefix in API_PREFIXES or prefix in self._page_prefixes:
            return prefix in self._page_prefixes
        return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def accepts_forms(path: str) -> bool:
    """Whether a path accepts HTML forms: pages do, since they check CSRF tokens; the API never does."""
    return path_prefix(path) not in API_PREFIXES


def path_prefix(path: str) -> str:
    return path.lstrip("/").partition("/")[0]
