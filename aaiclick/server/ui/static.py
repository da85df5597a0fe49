"""Stylesheet, scripts and the icon: read once, named by what is in them, so a browser may keep them for ever."""

from __future__ import annotations

import hashlib
from functools import cache
from http import HTTPStatus
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def contents() -> dict[str, bytes]:
    folder = files("aaiclick.server.ui") / "static"
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name.rpartition(".")[2] in KINDS}


@cache
def version() -> str:
    digest = hashlib.sha256()
    for name, body in sorted(contents().items()):
        digest.update(name.encode() + b"\0" + body)
    return digest.hexdigest()[:12]


def url(name: str) -> str:
    return f"/static/{version()}/{name}"


def route() -> Route:
    async def serve(request: Request) -> Response:
        name = request.path_params["name"]
        body = contents().get(name)
        if body is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        fresh = request.path_params["version"] == version()
        headers = {"Cache-Control": "public, max-age=31536000, immutable" if fresh else "no-store"}
        return Response(body, HTTPStatus.OK, headers, KINDS[name.rpartition(".")[2]])

    return Route("/static/{version}/{name}", serve, methods=["GET"])
