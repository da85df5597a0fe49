"""How routes are declared: each names its permission, and is guarded by it before its body is even parsed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from aaiclick.errors import ForbiddenError, RequestError
from aaiclick.server.analysis_pool import current_client
from aaiclick.server.permissions import Permission, Principal
from aaiclick.server.problems import CredentialError, MalformedError, documented
from aaiclick.server.service import Service

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
MARK = "x-permission"

SMALL_BODY_BYTES = 16_000
"""Larger bodies are parsed in a thread, where other requests get their turn."""

MAX_ERRORS = 100
"""Errors of one body that are listed; building the list of very many is expensive."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request that passed the guard: who asks, and what serves it."""

    service: Service
    principal: Principal
    request_id: str


def _call(request: Request) -> Call:
    return Call(request.app.state.service, request.state.principal, request.state.request_id)


Caller = Annotated[Call, Depends(_call)]


@dataclass(frozen=True)
class Declared:
    """One route as its module declares it."""

    method: str
    path: str
    permission: Permission
    endpoint: Callable[..., Any]
    options: dict[str, Any]


@dataclass
class Routes:
    """The routes of one resource."""

    tag: str
    declared: list[Declared] = field(default_factory=list[Declared])

    def get(self, path: str, permission: Permission, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self._declare("GET", path, permission, options)

    def post(self, path: str, permission: Permission, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self._declare("POST", path, permission, options)

    def put(self, path: str, permission: Permission, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self._declare("PUT", path, permission, options)

    def patch(self, path: str, permission: Permission, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self._declare("PATCH", path, permission, options)

    def delete(self, path: str, permission: Permission, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self._declare("DELETE", path, permission, options)

    def _declare(
        self, method: str, path: str, permission: Permission, options: dict[str, Any]
    ) -> Callable[[Endpoint], Endpoint]:
        def declare(endpoint: Endpoint) -> Endpoint:
            self.declared.append(Declared(method, path, permission, endpoint, options))
            return endpoint

        return declare

    def install(self, app: FastAPI) -> None:
        for route in self.declared:
            security: dict[str, Any] = {} if route.permission is Permission.PUBLIC else {"security": [{"bearer": []}]}
            app.add_api_route(
                route.path,
                route.endpoint,
                methods=[route.method],
                tags=[self.tag],
                operation_id=f"{self.tag}.{route.endpoint.__name__}",
                summary=_first_line(route.endpoint),
                responses={**documented(), **route.options.pop("responses", {})},
                openapi_extra={MARK: route.permission.value, **security},
                **route.options,
            )


def _first_line(endpoint: Callable[..., Any]) -> str:
    return (endpoint.__doc__ or endpoint.__name__).strip().splitlines()[0].rstrip(".")


class GuardedRoute(APIRoute):
    """Lets a request through if its credential allows it; a route without a declared permission lets nobody through."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        asked = Permission((self.openapi_extra or {})[MARK])
        adapter = (
            None if self.body_field is None else TypeAdapter(cast("type[Any]", self.body_field.field_info.annotation))
        )

        async def guarded(request: Request) -> Response:
            service: Service = request.app.state.service
            principal = await service.authenticate(request)
            request.state.principal = principal
            if principal is not None:
                current_client.set(str(principal.org_id))
            if asked is not Permission.PUBLIC:
                _require(principal, asked)
            if adapter is not None and (body := await request.body()):
                request._json = await _parse(adapter, body)  # pyright: ignore[reportPrivateUsage]
            return await handle(request)

        return guarded


async def _parse(adapter: TypeAdapter[Any], body: bytes) -> Any:
    """The validated body. FastAPI takes it from the request's cache and does not validate instances again."""
    if len(body) <= SMALL_BODY_BYTES:
        return parse_body(adapter, body)
    return await asyncio.to_thread(parse_body, adapter, body)


def parse_body(adapter: TypeAdapter[Any], body: bytes) -> Any:
    try:
        value = json.loads(body)
    except ValueError:  # also a number of more digits than Python reads
        raise MalformedError("The body is not JSON.", remedy="Send UTF-8 JSON.") from None
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if error.error_count() > MAX_ERRORS:
            raise RequestError(
                f"The request has {error.error_count():,} errors.", remedy=f"Up to {MAX_ERRORS} are listed."
            ) from None
        details = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in details]) from None


def _require(principal: Principal | None, asked: Permission) -> None:
    if principal is None:
        raise CredentialError(
            "This needs a credential.", remedy="Send 'Authorization: Bearer aai_…'; 'aaiclick key create' makes a key."
        )
    if asked not in principal.permissions:
        raise ForbiddenError(
            f"This needs the permission {asked.value!r}, which this credential does not have.",
            remedy="Use a key with that scope; an admin of your organisation can make one.",
        )
