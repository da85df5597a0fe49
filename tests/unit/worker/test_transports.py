"""Workers are tested over both transports: a new test is so by itself, and those that are not are few and say why."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.integration import transports

INTEGRATION = Path(transports.__file__).parent
WORKERS = {"bench", "ward"}
"""Fixtures that run workers; both go by `way`, which has a transport."""

EXEMPT = {"AFTER_THE_CLAIM": 12, "ONE_ORGANISATION": 3, "ONE_REQUEST": 2}


def worker_tests() -> list[tuple[str, ast.AsyncFunctionDef | ast.FunctionDef]]:
    return [
        (f"{path.relative_to(INTEGRATION)}::{node.name}", node)
        for path in sorted(INTEGRATION.rglob("test_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_")
        if WORKERS & {argument.arg for argument in node.args.args}
    ]


def reasons(node: ast.AsyncFunctionDef | ast.FunctionDef) -> list[str]:
    calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
    return [ast.unparse(each.args[0]) for each in calls if ast.unparse(each.func) == "directly"]


def test_most_worker_tests_are_over_both_transports_and_the_rest_say_why() -> None:
    found = worker_tests()
    exempt = Counter(reason for _, node in found for reason in reasons(node))
    assert exempt == EXEMPT
    assert exempt.total() < len(found) / 3


def test_a_test_that_says_nothing_is_over_both() -> None:
    assert transports.transports_of(None) == ("direct", "server")
    assert transports.transports_of(transports.directly(transports.AFTER_THE_CLAIM).mark) == ("direct",)
    for excuse in ((), ("it is slow",)):
        with pytest.raises(pytest.UsageError, match="reason"):
            transports.transports_of(pytest.mark.directly(*excuse).mark)


@pytest.mark.parametrize("place", ["worker", "runtimes", "lifecycle"])
def test_whatever_runs_workers_goes_by_a_way(place: str) -> None:
    """A fixture of that name that did not would be over one transport, and nobody would notice."""
    for path in (INTEGRATION / place).glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in WORKERS:
                assert "way" in {argument.arg for argument in node.args.args}, f"{path}: {node.name}"
