"""Whether a browser sent a request on behalf of a page that is not ours. Programs do not say where they come from."""

from __future__ import annotations

from starlette.requests import Request

READING = frozenset({"GET", "HEAD", "OPTIONS"})


def has_foreign_host(request: Request) -> bool:
    """Whether the page is of another host than the one asked. Schemes differ behind a proxy that ends TLS."""
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("host")


def changes_across_sites(request: Request) -> bool:
    """Whether a page of another origin wants to change something: scheme, host and port have to be ours."""
    if request.method in READING:
        return False
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return True
    origin = request.headers.get("origin")
    return origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host')}"
