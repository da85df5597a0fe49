"""The table of requests of the worker protocol agrees with the routes of the server."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from aaiclick.api.worker_protocol import endpoints
from aaiclick.api.worker_protocol.endpoints import ALIASES, PREFIX, Endpoint
from aaiclick.operations.actor import Permission
from aaiclick.server.routes import ALL

ENDPOINTS = {value.path: value for value in vars(endpoints).values() if isinstance(value, Endpoint)}
ROUTES = {route.path: route for routes in ALL for route in routes.declared if route.permission is Permission.WORKER}


def test_every_worker_route_is_in_the_table_or_an_alias() -> None:
    assert set(ROUTES) == {*ENDPOINTS, *ALIASES}
    assert all(path.startswith(PREFIX + "/") for path in ENDPOINTS)
    assert all(not path.startswith(PREFIX) for path in ALIASES)


@pytest.mark.parametrize("path", sorted(ENDPOINTS))
def test_routes_use_the_schemas_of_the_table(path: str) -> None:
    endpoint, route = ENDPOINTS[path], ROUTES[path]
    hints = get_type_hints(route.endpoint)
    response = route.options.get("response_model", hints["return"])
    assert (hints["body"], response) == (endpoint.request, endpoint.response)
    assert (route.options.get("status_code", 200) == 204) == (endpoint.response is type(None))
    assert endpoint.request.__name__.endswith("Request")
    assert endpoint.response is type(None) or endpoint.response.__name__.endswith("Response")


def test_aliases_are_the_paths_of_the_design_documents() -> None:
    assert set(ALIASES) == {
        "/internal/task-fetch", "/v1/task/claim", "/v1/task/heartbeat", "/v1/task/events", "/v1/task/complete",
        "/v1/task/fail",
    }  # fmt: skip
    for alias, path in ALIASES.items():
        assert ROUTES[alias].endpoint is ROUTES[path].endpoint
        assert ROUTES[alias].options["summary"] == f"Alias of {path}"
