"""Declaration of API routes with their permissions, which are checked before the body is parsed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from fastapi import Depends, FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from aaiclick.api.field_types import MAX_ID
from aaiclick.catalog.sql_yaml_analysis import current_client
from aaiclick.errors import ForbiddenError, RequestError
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import DatabasesOperation, Operation
from aaiclick.server.app_state import AppState, OrgDatabases
from aaiclick.server.problem_responses import CredentialError, MalformedError, openapi_responses

P = ParamSpec("P")
T = TypeVar("T")
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
PathId = Annotated[int, Path(ge=1, le=MAX_ID, description="A snowflake")]
PERMISSION_EXTENSION = "x-permission"

SMALL_BODY_BYTES = 16_000
"""Larger bodies are parsed in a thread, which does not block the event loop."""

MAX_ERRORS = 100
"""Maximum number of errors listed for one body; a list of very many is expensive to build."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """App state, actor and id of an authorised request."""

    app_state: AppState
    actor: Actor
    request_id: str

    @property
    def databases(self) -> OrgDatabases:
        return OrgDatabases(self.app_state, self.actor.org_id)

    async def perform(
        self, operation: Operation[P, T] | DatabasesOperation[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Perform an operation as the caller."""
        return await operation.perform(self.databases, self.audited_actor, *args, **kwargs)

    @property
    def audited_actor(self) -> Actor:
        """The actor with the id of this request, for audit entries."""
        return replace(self.actor, request_id=self.request_id)


def _request_context(request: Request) -> RequestContext:
    return RequestContext(request.app.state.app_state, request.state.actor, request.state.request_id)


Context = Annotated[RequestContext, Depends(_request_context)]


@dataclass(frozen=True)
class RouteDeclaration:
    """Declaration of one route."""

    method: str
    path: str
    permission: Permission
    endpoint: Callable[..., Any]
    options: dict[str, Any]


@dataclass
class Routes:
    """The routes of one resource."""

    tag: str
    declared: list[RouteDeclaration] = field(default_factory=list[RouteDeclaration])

    def get(self, path: str, permission: Permission, **options: object) -> Callable[[Endpoint], Endpoint]:
        return self._declare("GET", path, permission, options)

    def post(self, path: str, permission: Permission, **options: object) -> Callable[[Endpoint], Endpoint]:
        return self._declare("POST", path, permission, options)

    def put(self, path: str, permission: Permission, **options: object) -> Callable[[Endpoint], Endpoint]:
        return self._declare("PUT", path, permission, options)

    def patch(self, path: str, permission: Permission, **options: object) -> Callable[[Endpoint], Endpoint]:
        return self._declare("PATCH", path, permission, options)

    def delete(self, path: str, permission: Permission, **options: object) -> Callable[[Endpoint], Endpoint]:
        return self._declare("DELETE", path, permission, options)

    def _declare(
        self, method: str, path: str, permission: Permission, options: dict[str, Any]
    ) -> Callable[[Endpoint], Endpoint]:
        def decorate(endpoint: Endpoint) -> Endpoint:
            self.declared.append(RouteDeclaration(method, path, permission, endpoint, options))
            return endpoint

        return decorate

    def install(self, app: FastAPI) -> None:
        for route in self.declared:
            security: dict[str, Any] = {} if route.permission is Permission.PUBLIC else {"security": [{"bearer": []}]}
            options: dict[str, Any] = {
                "operation_id": route.endpoint.__name__,
                "summary": _first_line(route.endpoint),
                **route.options,
                "responses": {**openapi_responses(), **route.options.get("responses", {})},
            }
            app.add_api_route(
                route.path,
                route.endpoint,
                methods=[route.method],
                tags=[self.tag],
                openapi_extra={PERMISSION_EXTENSION: route.permission.value, **security},
                **options,
            )


def _first_line(endpoint: Callable[..., Any]) -> str:
    return (endpoint.__doc__ or endpoint.__name__).strip().splitlines()[0].rstrip(".")


class GuardedRoute(APIRoute):
    """Route that authenticates the request and requires the declared permission before it parses the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        required = Permission((self.openapi_extra or {})[PERMISSION_EXTENSION])
        adapter = (
            None if self.body_field is None else TypeAdapter(cast("type[Any]", self.body_field.field_info.annotation))
        )

        async def guarded(request: Request) -> Response:
            app_state: AppState = request.app.state.app_state
            actor = await app_state.authenticate(request)
            request.state.actor = actor
            if actor is not None:
                current_client.set(str(actor.org_id))
            if required is not Permission.PUBLIC:
                _require_permission(actor, required)
            if adapter is not None and (body := await request.body()):
                request._json = await _parse_body(adapter, body)  # pyright: ignore[reportPrivateUsage]
            return await handle(request)

        return guarded


async def _parse_body(adapter: TypeAdapter[Any], body: bytes) -> Any:
    """Parse and validate the body. FastAPI takes the result from the request and does not validate it again."""
    if len(body) <= SMALL_BODY_BYTES:
        return parse_body(adapter, body)
    return await asyncio.to_thread(parse_body, adapter, body)


def parse_body(adapter: TypeAdapter[Any], body: bytes) -> Any:
    try:
        value = json.loads(body)
    except ValueError:  # also for a number with more digits than Python accepts
        raise MalformedError("The body is not JSON.", remedy="Send UTF-8 JSON.") from None
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if error.error_count() > MAX_ERRORS:
            raise RequestError(
                f"The request has {error.error_count():,} errors.", remedy=f"Up to {MAX_ERRORS} are listed."
            ) from None
        details = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**detail, "loc": ("body", *detail["loc"])} for detail in details]) from None


def _require_permission(actor: Actor | None, required: Permission) -> None:
    if actor is None:
        raise CredentialError(
            "Authentication is required.",
            remedy="Send 'Authorization: Bearer aai_…'; 'aaiclick key create' creates a key.",
        )
    if required not in actor.permissions:
        raise ForbiddenError(
            f"The credential lacks the permission {required.value!r}.",
            remedy="Use a key with that scope; an admin of your organisation can create one.",
        )
