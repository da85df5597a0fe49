"""Errors of ClickHouse that are the server's fault carry its endpoint; those of a query do not."""

from __future__ import annotations

import pytest
from aiohttp import ClientConnectorError
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from aaiclick.data.errors import ObjectNotFoundError, QueryError
from aaiclick.data.server_errors import translate
from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.targets import ClickHouseTarget

TARGET = ClickHouseTarget("db", 8123, "user", "shop")


def said(code: int, words: str, name: str) -> DatabaseError:
    return DatabaseError(
        f"Received ClickHouse exception, code: {code}, server response: Code: {code}. DB::Exception: {words}. ({name})"
        " (version 25.8.1.1) (for url http://db:8123/secret)"
    )


SERVER = {
    "refused": (OperationalError("Network Error: Cannot connect to host db:8123"), UnreachableError),
    "reset": (ConnectionResetError(104, "Connection reset by peer"), UnreachableError),
    "no answer": (TimeoutError(), UnreachableError),
    "gateway": (DatabaseError("HTTP driver received HTTP status 503, server response: none"), UnreachableError),
    "bad gateway": (DatabaseError("HTTP driver received HTTP status 502"), UnreachableError),
    "password": (said(516, "user: Authentication failed", "AUTHENTICATION_FAILED"), UnauthorisedError),
    "database": (said(81, "Database shop does not exist", "UNKNOWN_DATABASE"), ObjectNotFoundError),
    "too many queries": (said(202, "Too many simultaneous queries", "TOO_MANY_SIMULTANEOUS_QUERIES"), QueryError),
    "total memory": (
        said(241, "(total) memory limit exceeded: would use 9.00 GiB, maximum: 8.00 GiB", "MEMORY_LIMIT_EXCEEDED"),
        QueryError,
    ),
    "total memory of older ones": (
        said(241, "Memory limit (total) exceeded: would use 9.00 GiB", "MEMORY_LIMIT_EXCEEDED"),
        QueryError,
    ),
    "memory of a user": (said(241, "User memory limit exceeded: would use 2 MiB", "MEMORY_LIMIT_EXCEEDED"), QueryError),
    "shutting down": (said(236, "Server shutdown is called", "ABORTED"), QueryError),
    "killed": (said(394, "Query was cancelled", "QUERY_WAS_CANCELLED"), QueryError),
    "disk full": (said(243, "Cannot reserve 1.00 MiB, not enough space", "NOT_ENOUGH_SPACE"), QueryError),
}
QUERY = {
    "own memory": said(241, "Query memory limit exceeded: would use 2 MiB", "MEMORY_LIMIT_EXCEEDED"),
    "own memory of older ones": said(241, "Memory limit (for query) exceeded: would use 2 MiB", "X"),
    "syntax": said(62, "Syntax error", "SYNTAX_ERROR"),
    "time": said(159, "Timeout exceeded", "TIMEOUT_EXCEEDED"),
    "unknown table": said(60, "Table shop.t1 does not exist", "UNKNOWN_TABLE"),
    "another database": said(81, "Database other does not exist", "UNKNOWN_DATABASE"),
    "another server": said(210, "Connection refused (example.com:80)", "NETWORK_ERROR"),
    "something else": ValueError("odd"),
}


@pytest.mark.parametrize("name", SERVER)
def test_faults_of_the_server_carry_its_endpoint(name: str) -> None:
    error, kind = SERVER[name]
    translated = translate(error, TARGET)
    assert isinstance(translated, kind)
    assert translated.endpoint == "db:8123"
    assert "secret" not in str(translated)


@pytest.mark.parametrize("name", QUERY)
def test_faults_of_a_query_carry_no_endpoint(name: str) -> None:
    assert translate(QUERY[name], TARGET).endpoint == ""


def test_errors_of_the_http_client_are_outages() -> None:
    assert issubclass(ClientConnectorError, OSError)
