"""Requests generated from the OpenAPI document for every role: no 5xx, and only documented responses."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, note, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from aaiclick.api.worker_protocol import endpoints

ROLES = [None, "reader", "writer", "admin", "worker", "operator-admin"]
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
ENDLESS = {"/v1/events", "/v1/tasks/{task_id}/log/follow", endpoints.WAIT.path, endpoints.CLAIM.path}
EXAMPLES = 2


def document(site):
    return schemathesis.openapi.from_dict(site.as_(None).get("/openapi.json").json())


def test_responses_match_the_openapi_document_for_every_role(site) -> None:
    """Requests are generated once, since that takes most of the time, and sent by each role."""
    schema = document(site)
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in {*ENDLESS, *endpoints.ALIASES, "/health"}:  # /health is 503: the site has no worker
            continue

        @settings(
            max_examples=EXAMPLES, database=None, deadline=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def ask(case) -> None:
            for role in ROLES:
                note(f"as {role}")
                headers = {} if role is None else {"Authorization": f"Bearer {site.keys[role]}"}
                response = case.call(base_url=site.server.url, headers=headers)
                case.validate_response(response, checks=CHECKS)

        given(case=operation.as_strategy())(ask)()
        tried += 1
    assert tried > 40


def test_every_operation_has_a_summary_and_documents_errors(site) -> None:
    paths = site.as_(None).get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert {"401", "403", "404", "422", "503"} <= set(operation["responses"]), (method, path)
            assert operation["x-permission"], (method, path)


def test_openapi_document_has_one_url(site) -> None:
    assert httpx.get(f"{site.server.url}/openapi.json", timeout=60).headers["content-type"] == "application/json"


def test_every_id_is_a_string(site) -> None:
    """JavaScript loses precision of numbers past 2^53."""
    parts = site.as_(None).get("/openapi.json").json()
    schemas: dict[str, str] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for name, schema in value.get("properties", {}).items():
                if re.search(r"(^|_)(id|ids)$", name):
                    schemas[f"{path}.{name}"] = json.dumps(schema)
            for key, item in value.items():
                walk(item, f"{path}/{key}")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}/{index}")

    walk(parts, "")
    assert len(schemas) > 50
    assert {name: schema for name, schema in schemas.items() if '"integer"' in schema or '"number"' in schema} == {}
