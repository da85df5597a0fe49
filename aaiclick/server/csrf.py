"""CSRF checks by Origin and Sec-Fetch-Site, which browsers send and programs do not."""

from __future__ import annotations

from starlette.requests import Request

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def has_foreign_host(request: Request) -> bool:
    """Whether Origin names another host. The scheme is ignored: it differs behind a proxy that terminates TLS."""
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("host")


def is_cross_site_change(request: Request) -> bool:
    """Whether a page of another origin sends an unsafe method; scheme, host and port have to match."""
    if request.method in SAFE_METHODS:
        return False
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return True
    origin = request.headers.get("origin")
    return origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host')}"
