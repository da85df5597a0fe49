"""Errors as RFC 9457 problems: one place that says which error is which status and code.

    {"type": "urn:aaiclick:problem:not_found", "title": "…", "status": 404, "code": "not_found",
     "detail": "There is no job 7.", "remedy": "…", "request_id": "…"}

`code` is stable: programs may rely on it. No problem repeats what was sent, and no traceback leaves the server.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import asyncpg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from aaiclick.catalog.errors import CatalogError, DagError, DeployError, QueryRefusedError
from aaiclick.data.errors import DataError, ObjectExistsError, ObjectNotFoundError
from aaiclick.errors import (
    AaiclickError,
    ConflictError,
    CycleError,
    EntrypointError,
    ForbiddenError,
    HomeError,
    LeaseLost,
    NotFoundError,
    RequestError,
    SchemaError,
    SecretError,
    SettingsError,
    StackError,
    SubmitError,
    UnauthorisedError,
    UnknownTableError,
    UnreachableError,
    UnsupportedServerError,
)

log = logging.getLogger("aaiclick.server")

CONTENT_TYPE = "application/problem+json"


class Problem(BaseModel):
    """What went wrong (RFC 9457), with a code for programs and a remedy for people."""

    type: str = Field(examples=["urn:aaiclick:problem:not_found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    code: str = Field(examples=["not_found"])
    detail: str = Field(examples=["There is no job 7."])
    remedy: str | None = None
    request_id: str | None = None
    errors: list[dict[str, str]] | None = Field(default=None, description="Fields that are not as they should be")


class CredentialError(UnauthorisedError):
    """No credential, or one that opens nothing. Which of the two is not said."""


class TooLargeError(RequestError):
    """A body is larger than the service takes."""


class MediaTypeError(RequestError):
    """A body is not JSON."""


class MalformedError(RequestError):
    """A request cannot be read."""


class AmbiguousLengthError(MalformedError):
    """Two servers would find the end of a request at different places (request smuggling)."""


class SlowRequestError(RequestError):
    """A request did not arrive in time."""


class TooManyRequestsError(RequestError):
    """A client uses more than its share at once."""


class BusyError(RequestError):
    """The server has as much to do as it takes at once."""


class RepeatedKeyError(ConflictError):
    """An Idempotency-Key comes again with another body."""


@dataclass(frozen=True)
class Kind:
    """How an error leaves the server."""

    status: HTTPStatus
    code: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secret: bool = False
    """Its words are for whoever runs the server: they go to its log."""


_AWAY = {"Retry-After": "2"}

KINDS: dict[type[AaiclickError], Kind] = {
    CredentialError: Kind(HTTPStatus.UNAUTHORIZED, "unauthorised", {"WWW-Authenticate": 'Bearer realm="aaiclick"'}),
    ForbiddenError: Kind(HTTPStatus.FORBIDDEN, "forbidden"),
    NotFoundError: Kind(HTTPStatus.NOT_FOUND, "not_found"),
    ObjectNotFoundError: Kind(HTTPStatus.NOT_FOUND, "not_found"),
    ConflictError: Kind(HTTPStatus.CONFLICT, "conflict"),
    RepeatedKeyError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency_key_reused"),
    ObjectExistsError: Kind(HTTPStatus.CONFLICT, "conflict"),
    SecretError: Kind(HTTPStatus.CONFLICT, "secret"),
    LeaseLost: Kind(HTTPStatus.CONFLICT, "lease_lost"),
    TooLargeError: Kind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"),
    MediaTypeError: Kind(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json"),
    MalformedError: Kind(HTTPStatus.BAD_REQUEST, "malformed"),
    AmbiguousLengthError: Kind(HTTPStatus.BAD_REQUEST, "malformed", {"Connection": "close"}),
    SlowRequestError: Kind(HTTPStatus.REQUEST_TIMEOUT, "too_slow", {"Connection": "close"}),
    TooManyRequestsError: Kind(HTTPStatus.TOO_MANY_REQUESTS, "too_many", _AWAY),
    BusyError: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "busy", _AWAY),
    RequestError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"),
    UnknownTableError: Kind(HTTPStatus.NOT_FOUND, "not_found"),
    CycleError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "cycle"),
    SubmitError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "not_runnable"),
    EntrypointError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "entrypoint"),
    CatalogError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "catalog"),
    DagError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "dag_invalid"),
    DeployError: Kind(HTTPStatus.CONFLICT, "not_deployable"),
    QueryRefusedError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "query_refused"),
    DataError: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "data"),
    UnreachableError: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _AWAY, secret=True),
    StackError: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _AWAY, secret=True),
    UnauthorisedError: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _AWAY, secret=True),
    UnsupportedServerError: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _AWAY, secret=True),
    SchemaError: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _AWAY, secret=True),
    SettingsError: Kind(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", secret=True),
    HomeError: Kind(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", secret=True),
    AaiclickError: Kind(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", secret=True),
}
"""The nearest ancestor of an error decides."""

UNROUTED = {
    HTTPStatus.NOT_FOUND: ("not_found", "There is nothing at this address."),
    HTTPStatus.METHOD_NOT_ALLOWED: ("method_not_allowed", "This address does not take this method."),
    HTTPStatus.BAD_REQUEST: ("bad_request", "The body cannot be read."),
}
"""What the framework refuses before a route is asked: code and words."""

_SAID = {
    "unavailable": "A database of this service does not answer.",
    "internal": "The service met an error of its own.",
}


def kind_of(error: AaiclickError) -> Kind:
    """How this error leaves the server."""
    return next(KINDS[ancestor] for ancestor in type(error).__mro__ if ancestor in KINDS)


def translate(error: Exception) -> AaiclickError | None:
    """What an error of a library means to whoever asked; None if it is a defect of ours."""
    match error:
        case AaiclickError():
            return error
        case asyncpg.QueryCanceledError():
            return RequestError("PostgreSQL needed too long for this.", remedy="Ask for less: narrow the filters.")
        case asyncpg.DataError() | asyncpg.ProgramLimitExceededError() | UnicodeError():
            return SubmitError(
                "A value cannot be stored: PostgreSQL has no such character or number, or no room for it."
            )
        case asyncpg.CheckViolationError() | asyncpg.NotNullViolationError():
            return SubmitError(f"A value is refused by the rule {error.constraint_name or error.column_name}.")
        case asyncpg.IntegrityConstraintViolationError():
            return ConflictError("Something that this refers to has changed meanwhile.", remedy="Look again.")
        case (
            asyncpg.ReadOnlySQLTransactionError()
            | asyncpg.InsufficientResourcesError()
            | asyncpg.PostgresIOError()
            | asyncpg.PostgresSystemError()
        ):
            return UnreachableError(f"PostgreSQL cannot write: {error}.")
        case (
            asyncpg.PostgresConnectionError()
            | asyncpg.CannotConnectNowError()
            | asyncpg.AdminShutdownError()
            | asyncpg.IdleInTransactionSessionTimeoutError()
            | ConnectionError()
            | TimeoutError()
        ):
            return UnreachableError(f"PostgreSQL went away: {error}.")
        case asyncpg.InterfaceError() if "connection" in str(error) or "pool" in str(error):
            return UnreachableError(f"PostgreSQL went away: {error}.")
        case asyncpg.InternalClientError() if "cannot switch to state" in str(error):
            # The driver has begun to read of the end that PostgreSQL made of the connection while nobody used it.
            return UnreachableError(f"PostgreSQL went away: {error}.")
        case _:
            return None


def answer(error: AaiclickError, request_id: str | None, errors: list[dict[str, str]] | None = None) -> Response:
    """The response that tells of an error."""
    kind = kind_of(error)
    if kind.secret:
        log.error("request %s: %s", request_id, error)
    return respond(
        kind.status,
        kind.code,
        _SAID[kind.code] if kind.secret else error.what,
        request_id,
        remedy=None if kind.secret else error.remedy or None,
        headers=kind.headers,
        errors=errors,
    )


def respond(
    status: int,
    code: str,
    detail: str,
    request_id: str | None,
    *,
    remedy: str | None = None,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> Response:
    problem = Problem(
        type=f"urn:aaiclick:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        remedy=remedy,
        request_id=request_id,
        errors=errors,
    )
    return JSONResponse(
        problem.model_dump(exclude_none=True), status, headers=dict(headers or {}), media_type=CONTENT_TYPE
    )


def install(app: FastAPI) -> None:
    """Have every error of a route leave as a problem."""

    async def on_error(request: Request, error: Exception) -> Response:
        known = translate(error)
        if known is None:
            raise error
        return answer(known, request_id_of(request))

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        details = error.errors()
        if any(detail["type"] == "json_invalid" for detail in details):
            return answer(MalformedError("The body is not JSON.", remedy="Send UTF-8 JSON."), request_id_of(request))
        fields = [{"where": ".".join(map(str, detail["loc"])), "what": str(detail["msg"])} for detail in details]
        return answer(
            RequestError("The request is not as it should be.", remedy="'errors' names the fields."),
            request_id_of(request),
            fields,
        )

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        status = HTTPStatus(error.status_code)
        if status not in UNROUTED:
            raise error
        return respond(status, *UNROUTED[status], request_id_of(request), headers=error.headers)

    for kind in (
        AaiclickError, asyncpg.PostgresError, asyncpg.InterfaceError, UnicodeError, ConnectionError, TimeoutError,
    ):  # fmt: skip
        app.add_exception_handler(kind, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)


def request_id_of(request: Request) -> str | None:
    return getattr(request.state, "request_id", None)


def documented() -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of errors, for every route alike."""
    statuses = sorted({int(kind.status) for kind in KINDS.values()} | {400})
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}
