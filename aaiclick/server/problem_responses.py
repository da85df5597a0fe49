"""RFC 9457 problem responses: the status and code of every error.

    {"type": "urn:aaiclick:problem:not_found", "title": "…", "status": 404, "code": "not_found",
     "detail": "There is no job 7.", "remedy": "…", "request_id": "…"}

`code` is stable: programs may rely on it. Problems contain neither request data nor tracebacks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

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
    DeliveryError,
    EntrypointError,
    ForbiddenError,
    HomeError,
    LeaseLost,
    NotFoundError,
    RequestError,
    ScheduleError,
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
from aaiclick.operations.pagination import CursorError

log = logging.getLogger("aaiclick.server")

CONTENT_TYPE = "application/problem+json"


class Problem(BaseModel):
    """RFC 9457 problem with a code for programs and a remedy for users."""

    type: str = Field(examples=["urn:aaiclick:problem:not_found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    code: str = Field(examples=["not_found"])
    detail: str = Field(examples=["There is no job 7."])
    remedy: str | None = None
    request_id: str | None = None
    errors: list[dict[str, str]] | None = Field(default=None, description="Invalid fields")


class CredentialError(UnauthorisedError):
    """No credential, or an invalid one."""


class TooLargeError(RequestError):
    """A body is larger than the limit."""


class MediaTypeError(RequestError):
    """A body is not JSON."""


class MalformedError(RequestError):
    """A request cannot be read."""


class AmbiguousLengthError(MalformedError):
    """A request declares its length twice (request smuggling)."""


class SlowRequestError(RequestError):
    """A request did not arrive in time."""


class TooManyRequestsError(RequestError):
    """A client exceeds its limit of concurrent requests."""


class BusyError(RequestError):
    """The server is at its limit of concurrent work."""


class RepeatedKeyError(ConflictError):
    """An Idempotency-Key was used before with another body."""


@dataclass(frozen=True)
class ProblemType:
    """Status, code and headers of the response to an error."""

    status: HTTPStatus
    code: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secret: bool = False
    """The message is logged and not sent to the client."""


_RETRY_AFTER = {"Retry-After": "2"}

PROBLEM_TYPES: dict[type[AaiclickError], ProblemType] = {
    CredentialError: ProblemType(
        HTTPStatus.UNAUTHORIZED, "unauthorised", {"WWW-Authenticate": 'Bearer realm="aaiclick"'}
    ),
    ForbiddenError: ProblemType(HTTPStatus.FORBIDDEN, "forbidden"),
    NotFoundError: ProblemType(HTTPStatus.NOT_FOUND, "not_found"),
    ObjectNotFoundError: ProblemType(HTTPStatus.NOT_FOUND, "not_found"),
    ConflictError: ProblemType(HTTPStatus.CONFLICT, "conflict"),
    RepeatedKeyError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency_key_reused"),
    ObjectExistsError: ProblemType(HTTPStatus.CONFLICT, "conflict"),
    SecretError: ProblemType(HTTPStatus.CONFLICT, "secret"),
    DeliveryError: ProblemType(HTTPStatus.CONFLICT, "delivery"),
    LeaseLost: ProblemType(HTTPStatus.CONFLICT, "lease_lost"),
    TooLargeError: ProblemType(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"),
    MediaTypeError: ProblemType(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json"),
    MalformedError: ProblemType(HTTPStatus.BAD_REQUEST, "malformed"),
    CursorError: ProblemType(HTTPStatus.BAD_REQUEST, "malformed"),
    AmbiguousLengthError: ProblemType(HTTPStatus.BAD_REQUEST, "malformed", {"Connection": "close"}),
    SlowRequestError: ProblemType(HTTPStatus.REQUEST_TIMEOUT, "too_slow", {"Connection": "close"}),
    TooManyRequestsError: ProblemType(HTTPStatus.TOO_MANY_REQUESTS, "too_many", _RETRY_AFTER),
    BusyError: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "busy", _RETRY_AFTER),
    RequestError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"),
    UnknownTableError: ProblemType(HTTPStatus.NOT_FOUND, "not_found"),
    CycleError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "cycle"),
    ScheduleError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "schedule"),
    SubmitError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "not_runnable"),
    EntrypointError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "entrypoint"),
    CatalogError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "catalog"),
    DagError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "dag_invalid"),
    DeployError: ProblemType(HTTPStatus.CONFLICT, "not_deployable"),
    QueryRefusedError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "query_refused"),
    DataError: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "data"),
    UnreachableError: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _RETRY_AFTER, secret=True),
    StackError: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _RETRY_AFTER, secret=True),
    UnauthorisedError: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _RETRY_AFTER, secret=True),
    UnsupportedServerError: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _RETRY_AFTER, secret=True),
    SchemaError: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", _RETRY_AFTER, secret=True),
    SettingsError: ProblemType(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", secret=True),
    HomeError: ProblemType(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", secret=True),
    AaiclickError: ProblemType(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", secret=True),
}
"""Looked up by the nearest ancestor of an error's class."""

FRAMEWORK_ERRORS = {
    HTTPStatus.NOT_FOUND: ("not_found", "There is nothing at this address."),
    HTTPStatus.METHOD_NOT_ALLOWED: ("method_not_allowed", "This address does not accept this method."),
    HTTPStatus.BAD_REQUEST: ("bad_request", "The body cannot be read."),
}
"""Code and detail of errors that the framework raises before a route runs."""

_PUBLIC_DETAILS = {
    "unavailable": "A database of the server is unreachable.",
    "internal": "Internal server error.",
}


def problem_type_of(error: AaiclickError) -> ProblemType:
    """The problem type of an error."""
    return next(PROBLEM_TYPES[ancestor] for ancestor in type(error).__mro__ if ancestor in PROBLEM_TYPES)


def translate_error(error: Exception) -> AaiclickError | None:
    """Translate an error of a library; None if it is a defect of the server."""
    match error:
        case AaiclickError():
            return error
        case asyncpg.QueryCanceledError():
            return RequestError("The query exceeded its time limit.", remedy="Narrow the filters.")
        case asyncpg.DataError() | asyncpg.ProgramLimitExceededError() | UnicodeError():
            return SubmitError("PostgreSQL cannot store a value: invalid character, number out of range, or too large.")
        case asyncpg.CheckViolationError() | asyncpg.NotNullViolationError():
            return SubmitError(f"A value violates the constraint {error.constraint_name or error.column_name}.")
        case asyncpg.IntegrityConstraintViolationError():
            return ConflictError("A referenced resource was changed concurrently.", remedy="Reload it and try again.")
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
            return UnreachableError(f"PostgreSQL is unreachable: {error}.")
        case asyncpg.InterfaceError() if "connection" in str(error) or "pool" in str(error):
            return UnreachableError(f"PostgreSQL is unreachable: {error}.")
        case asyncpg.InternalClientError() if "cannot switch to state" in str(error):
            # The driver found that PostgreSQL had closed the connection while it was idle.
            return UnreachableError(f"PostgreSQL is unreachable: {error}.")
        case _:
            return None


def public_error(error: AaiclickError | None) -> AaiclickError:
    """The error that a client may see; None is a defect of the server."""
    problem_type = problem_type_of(error or AaiclickError(""))
    return AaiclickError(_PUBLIC_DETAILS[problem_type.code]) if error is None or problem_type.secret else error


def error_response(
    error: AaiclickError, request_id: str | None, errors: list[dict[str, str]] | None = None
) -> Response:
    """The problem response to an error."""
    problem_type = problem_type_of(error)
    if problem_type.secret:
        log.error("request %s: %s", request_id, error)
    public = public_error(error)
    return problem_response(
        problem_type.status,
        problem_type.code,
        public.what,
        request_id,
        remedy=public.remedy or None,
        headers=problem_type.headers,
        errors=errors,
    )


def problem_response(
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


def install_handlers(app: FastAPI) -> None:
    """Turn every error of a route into a problem response."""

    async def on_error(request: Request, error: Exception) -> Response:
        translated = translate_error(error)
        if translated is None:
            raise error
        return error_response(translated, request_id_of(request))

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        details = error.errors()
        if any(detail["type"] == "json_invalid" for detail in details):
            return error_response(
                MalformedError("The body is not JSON.", remedy="Send UTF-8 JSON."), request_id_of(request)
            )
        fields = [{"where": ".".join(map(str, detail["loc"])), "what": str(detail["msg"])} for detail in details]
        return error_response(
            RequestError("Invalid request.", remedy="'errors' lists the invalid fields."),
            request_id_of(request),
            fields,
        )

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        status = HTTPStatus(error.status_code)
        if status not in FRAMEWORK_ERRORS:
            raise error
        return problem_response(status, *FRAMEWORK_ERRORS[status], request_id_of(request), headers=error.headers)

    for error_class in (
        AaiclickError, asyncpg.PostgresError, asyncpg.InterfaceError, UnicodeError, ConnectionError, TimeoutError,
    ):  # fmt: skip
        app.add_exception_handler(error_class, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)


def request_id_of(request: Request) -> str | None:
    return getattr(request.state, "request_id", None)


def openapi_responses() -> dict[int | str, dict[str, object]]:
    """Error responses of every route in the OpenAPI document."""
    statuses = sorted({int(problem_type.status) for problem_type in PROBLEM_TYPES.values()} | {400})
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}
