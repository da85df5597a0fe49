"""ClickHouse errors caused by the server carry its endpoint; errors caused by a query do not."""

from __future__ import annotations

import pytest
from aiohttp import ClientConnectorError
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from aaiclick.data.errors import ObjectNotFoundError, QueryError
from aaiclick.data.runtime.server_errors import translate_error
from aaiclick.errors import UnauthorisedError, UnreachableError
from aaiclick.server_addresses import ClickHouseEndpoint

TARGET = ClickHouseEndpoint("db", 8123, "user", "shop")


def server_error(code: int, text: str, name: str) -> DatabaseError:
    return DatabaseError(
        f"Received ClickHouse exception, code: {code}, server response: Code: {code}. DB::Exception: {text}. ({name})"
        " (version 25.8.1.1) (for url http://db:8123/secret)"
    )


SERVER = {
    "refused": (OperationalError("Network Error: Cannot connect to host db:8123"), UnreachableError),
    "reset": (ConnectionResetError(104, "Connection reset by peer"), UnreachableError),
    "no answer": (TimeoutError(), UnreachableError),
    "gateway": (DatabaseError("HTTP driver received HTTP status 503, server response: none"), UnreachableError),
    "bad gateway": (DatabaseError("HTTP driver received HTTP status 502"), UnreachableError),
    "password": (server_error(516, "user: Authentication failed", "AUTHENTICATION_FAILED"), UnauthorisedError),
    "database": (server_error(81, "Database shop does not exist", "UNKNOWN_DATABASE"), ObjectNotFoundError),
    "too many queries": (
        server_error(202, "Too many simultaneous queries", "TOO_MANY_SIMULTANEOUS_QUERIES"),
        QueryError,
    ),
    "total memory": (
        server_error(
            241, "(total) memory limit exceeded: would use 9.00 GiB, maximum: 8.00 GiB", "MEMORY_LIMIT_EXCEEDED"
        ),
        QueryError,
    ),
    "total memory of older ones": (
        server_error(241, "Memory limit (total) exceeded: would use 9.00 GiB", "MEMORY_LIMIT_EXCEEDED"),
        QueryError,
    ),
    "memory of a user": (
        server_error(241, "User memory limit exceeded: would use 2 MiB", "MEMORY_LIMIT_EXCEEDED"),
        QueryError,
    ),
    "shutting down": (server_error(236, "Server shutdown is called", "ABORTED"), QueryError),
    "killed": (server_error(394, "Query was cancelled", "QUERY_WAS_CANCELLED"), QueryError),
    "disk full": (server_error(243, "Cannot reserve 1.00 MiB, not enough space", "NOT_ENOUGH_SPACE"), QueryError),
}
QUERY = {
    "own memory": server_error(241, "Query memory limit exceeded: would use 2 MiB", "MEMORY_LIMIT_EXCEEDED"),
    "own memory of older ones": server_error(241, "Memory limit (for query) exceeded: would use 2 MiB", "X"),
    "syntax": server_error(62, "Syntax error", "SYNTAX_ERROR"),
    "time": server_error(159, "Timeout exceeded", "TIMEOUT_EXCEEDED"),
    "unknown table": server_error(60, "Table shop.t1 does not exist", "UNKNOWN_TABLE"),
    "another database": server_error(81, "Database other does not exist", "UNKNOWN_DATABASE"),
    "another server": server_error(210, "Connection refused (example.com:80)", "NETWORK_ERROR"),
    "something else": ValueError("odd"),
}


@pytest.mark.parametrize("name", SERVER)
def test_server_faults_carry_the_endpoint(name: str) -> None:
    error, error_type = SERVER[name]
    translated = translate_error(error, TARGET)
    assert isinstance(translated, error_type)
    assert translated.address == "db:8123"
    assert "secret" not in str(translated)


@pytest.mark.parametrize("name", QUERY)
def test_query_faults_carry_no_endpoint(name: str) -> None:
    assert translate_error(QUERY[name], TARGET).address == ""


def test_errors_of_the_http_client_are_outages() -> None:
    assert issubclass(ClientConnectorError, OSError)


def test_nested_aggregate_error_explains_that_an_alias_hides_a_column() -> None:
    text = "Aggregate function sum(euros) is found inside another aggregate function in query"
    error = translate_error(server_error(184, text, "ILLEGAL_AGGREGATION"), TARGET)
    assert str(error).splitlines()[0] == (
        f"ClickHouse refused the query: {text}. An alias hides the column of the same name: rename the alias, or "
        "write the column as TABLE.COLUMN."
    )
