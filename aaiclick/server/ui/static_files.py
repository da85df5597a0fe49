"""Static files with a content hash in the URL, so that browsers cache them without expiry."""

from __future__ import annotations

import hashlib
from functools import cache
from http import HTTPStatus
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def load_files() -> dict[str, bytes]:
    folder = files("aaiclick.server.ui") / "static"
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name.rpartition(".")[2] in MEDIA_TYPES}


@cache
def content_version() -> str:
    digest = hashlib.sha256()
    for name, body in sorted(load_files().items()):
        digest.update(name.encode() + b"\0" + body)
    return digest.hexdigest()[:12]


def static_url(name: str) -> str:
    return f"/static/{content_version()}/{name}"


def static_route() -> Route:
    async def serve_file(request: Request) -> Response:
        name = request.path_params["name"]
        body = load_files().get(name)
        if body is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        is_current = request.path_params["version"] == content_version()
        headers = {"Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-store"}
        return Response(body, HTTPStatus.OK, headers, MEDIA_TYPES[name.rpartition(".")[2]])

    return Route("/static/{version}/{name}", serve_file, methods=["GET"])
