"""Every call as plain data: what is sent, and what is made of the answer. Both clients share them."""

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
"""Code of a problem → the error that it was."""

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def get(path: str, **query: Any) -> Call:
    return Call("GET", path, {name: value for name, value in query.items() if value is not None})


def post(path: str, body: Any = None, *, once: bool = False, **query: Any) -> Call:
    """With `once`, a repetition after a broken connection is done once."""
    headers = {"Idempotency-Key": str(uuid4())} if once else {}
    return Call("POST", path, {name: value for name, value in query.items() if value is not None}, body, headers)


def create_job(
    name: str,
    entrypoint: str | None,
    kwargs: Mapping[str, Any] | None,
    tasks: Sequence[Mapping[str, Any]] | None,
    groups: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> Call:
    body: dict[str, Any] = {"name": name, **options}
    if entrypoint is not None:
        body |= {"entrypoint": entrypoint, "kwargs": dict(kwargs or {})}
    if tasks is not None:
        body |= {"tasks": list(tasks), "groups": list(groups or ())}
    return post("/v1/jobs", body, once=True)


def cursor(last_id: int | None) -> str | None:
    """Where a listing goes on after the row of this id."""
    return None if last_id is None else base64.urlsafe_b64encode(str(last_id).encode()).decode().rstrip("=")


def named(*parts: object) -> str:
    """A path whose parts are quoted."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def error_of(status: int, problem: Any) -> AaiclickError:
    """What a refused request means."""
    if not isinstance(problem, dict):
        return UnreachableError(
            f"What answers is not an aaiclick server: it said {status}.", remedy="Check AAICLICK_SERVER."
        )
    facts: dict[str, Any] = problem  # pyright: ignore[reportUnknownVariableType]
    kind = ERRORS.get(str(facts.get("code")), AaiclickError)
    fields = [f"{each['where']}: {each['what']}" for each in facts.get("errors") or ()]
    what = " ".join([str(facts.get("detail", "The server refused the request.")), *fields])
    return kind(what, remedy=str(facts.get("remedy") or ""))
