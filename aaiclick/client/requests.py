"""Requests of the HTTP API as data, and the errors of its responses; shared by both clients."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel, TypeAdapter, ValidationError

from aaiclick.errors import (
    AaiclickError,
    ConflictError,
    CycleError,
    DeliveryError,
    EntrypointError,
    ForbiddenError,
    LeaseLost,
    NotFoundError,
    RequestError,
    ScheduleError,
    SecretError,
    SubmitError,
    UnauthorisedError,
    UnreachableError,
)

T = TypeVar("T")

ERRORS: dict[str, type[AaiclickError]] = {
    "unauthorised": UnauthorisedError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "conflict": ConflictError,
    "idempotency_key_reused": ConflictError,
    "lease_lost": LeaseLost,
    "secret": SecretError,
    "cycle": CycleError,
    "not_runnable": SubmitError,
    "entrypoint": EntrypointError,
    "delivery": DeliveryError,
    "schedule": ScheduleError,
    "invalid": RequestError,
    "malformed": RequestError,
    "too_large": RequestError,
    "catalog": RequestError,
    "dag_invalid": RequestError,
    "not_deployable": ConflictError,
    "query_refused": RequestError,
    "data": RequestError,
    "not_json": RequestError,
    "unavailable": UnreachableError,
    "busy": UnreachableError,
    "too_many": UnreachableError,
    "too_slow": UnreachableError,
}
"""Problem code → error class."""


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[T]):
    """One request, and the type of its response."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    response: type[T] | Any = Any

    def with_cursor(self, cursor: str | None) -> ApiRequest[T]:
        """Return the request of the page at a cursor."""
        return self if cursor is None else replace(self, query={**self.query, "cursor": cursor})


def build_request(
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
    response: type[T],
    *path: object,
    query: Mapping[str, object] | None = None,
    body: BaseModel | Mapping[str, object] | None = None,
    idempotent: bool = False,
) -> ApiRequest[T]:
    """Build a request to a path below /v1; `idempotent` adds an Idempotency-Key, so that it can be repeated safely."""
    return ApiRequest(
        method,
        build_path(*path),
        {name: value for name, value in (query or {}).items() if value is not None},
        body.model_dump(mode="json", exclude_unset=True) if isinstance(body, BaseModel) else body,
        {"Idempotency-Key": str(uuid4())} if idempotent else {},
        response,
    )


def parse_response(request: ApiRequest[T], content: bytes) -> T:
    """Parse the body of a successful response; raises AaiclickError if it has another format."""
    try:
        adapter = _type_adapter(request.response)
        return adapter.validate_json(content) if content else adapter.validate_python(None)
    except ValidationError as error:
        raise AaiclickError(
            f"The response to {request.method} {request.path} cannot be read: {error}",
            remedy="Use the same version of aaiclick for the client and the server.",
        ) from None


@functools.cache
def _type_adapter(response: Any) -> TypeAdapter[Any]:
    return TypeAdapter(response)


def post(path: str, body: object = None) -> ApiRequest[Any]:
    """Build a request of the worker protocol, with the JSON of the response as its result."""
    return ApiRequest("POST", path, body=body)


def encode_cursor(last_id: int | None) -> str | None:
    """Return the cursor of a listing that continues after this id."""
    return None if last_id is None else base64.urlsafe_b64encode(str(last_id).encode()).decode().rstrip("=")


def build_path(*parts: object) -> str:
    """Build a path below /v1 from quoted parts."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def parse_problem(status: int, problem: object) -> AaiclickError:
    """Return the error for a response with an error status."""
    if not isinstance(problem, dict):
        return UnreachableError(
            f"The server is not an aaiclick server: it answered {status}.", remedy="Check AAICLICK_SERVER."
        )
    details: dict[str, Any] = problem  # pyright: ignore[reportUnknownVariableType]
    error_class = ERRORS.get(str(details.get("code")), AaiclickError)
    fields = [f"{entry['where']}: {entry['what']}" for entry in details.get("errors") or ()]
    what = " ".join([str(details.get("detail", "The server refused the request.")), *fields])
    return error_class(what, remedy=str(details.get("remedy") or ""))
