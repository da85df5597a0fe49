"""Requests of the HTTP API as data, and the errors of its responses; shared by both clients."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from aaiclick.errors import (
    AaiclickError,
    ConflictError,
    CycleError,
    EntrypointError,
    ForbiddenError,
    LeaseLost,
    NotFoundError,
    RequestError,
    SecretError,
    SubmitError,
    UnauthorisedError,
    UnreachableError,
)

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

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def get(path: str, **query: object) -> ApiRequest:
    return ApiRequest("GET", path, {name: value for name, value in query.items() if value is not None})


def post(path: str, body: object = None, *, idempotent: bool = False, **query: object) -> ApiRequest:
    """Build a POST request; `idempotent` adds an Idempotency-Key, so that it can be repeated safely."""
    headers = {"Idempotency-Key": str(uuid4())} if idempotent else {}
    return ApiRequest("POST", path, {name: value for name, value in query.items() if value is not None}, body, headers)


def put(path: str, body: Any) -> ApiRequest:
    return ApiRequest("PUT", path, body=body)


def create_job(
    name: str,
    entrypoint: str | None,
    kwargs: Mapping[str, object] | None,
    tasks: Sequence[Mapping[str, object]] | None,
    groups: Sequence[Mapping[str, object]] | None,
    options: Mapping[str, object],
) -> ApiRequest:
    body: dict[str, object] = {"name": name, **options}
    if entrypoint is not None:
        body |= {"entrypoint": entrypoint, "kwargs": dict(kwargs or {})}
    if tasks is not None:
        body |= {"tasks": list(tasks), "groups": list(groups or ())}
    return post("/v1/jobs", body, idempotent=True)


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
