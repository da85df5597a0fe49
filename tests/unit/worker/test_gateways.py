"""Worker tests run over both gateways, except for a few that give a reason."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.integration import gateways

INTEGRATION = Path(gateways.__file__).parent
WORKERS = {"worker_env", "worker_processes"}
"""Fixtures that run workers; both use the fixture `gateway`, which is parametrised."""

EXEMPT = {"AFTER_CLAIM": 12, "NO_CHILDREN": 1, "ONE_ORGANISATION": 3, "ONE_REQUEST": 3}


def worker_tests() -> list[tuple[str, ast.AsyncFunctionDef | ast.FunctionDef]]:
    return [
        (f"{path.relative_to(INTEGRATION)}::{node.name}", node)
        for path in sorted(INTEGRATION.rglob("test_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_")
        if WORKERS & {argument.arg for argument in node.args.args}
    ]


def reasons(node: ast.AsyncFunctionDef | ast.FunctionDef) -> list[str]:
    calls = [call for call in node.decorator_list if isinstance(call, ast.Call)]
    return [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "postgres_only"]


def test_most_worker_tests_use_both_gateways() -> None:
    tests = worker_tests()
    exempt = Counter(reason for _, node in tests for reason in reasons(node))
    assert exempt == EXEMPT
    assert exempt.total() < len(tests) / 3


def test_unmarked_tests_use_both_gateways() -> None:
    assert gateways.gateway_kinds(None) == ("direct", "server")
    assert gateways.gateway_kinds(gateways.postgres_only(gateways.AFTER_CLAIM).mark) == ("direct",)
    for excuse in ((), ("it is slow",)):
        with pytest.raises(pytest.UsageError, match="reason"):
            gateways.gateway_kinds(pytest.mark.postgres_only(*excuse).mark)


@pytest.mark.parametrize("directory", ["worker", "runtimes", "lifecycle"])
def test_worker_fixtures_use_the_gateway_fixture(directory: str) -> None:
    """Otherwise its tests would silently use one gateway only."""
    for path in (INTEGRATION / directory).glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in WORKERS:
                assert "gateway" in {argument.arg for argument in node.args.args}, f"{path}: {node.name}"
