"""Problem responses: every error has one, and docs/api.md lists every code with its status."""

from __future__ import annotations

import ast
import re
from http import HTTPStatus
from pathlib import Path

import pytest

from aaiclick import errors, server
from aaiclick.data import errors as data_errors
from aaiclick.errors import AaiclickError
from aaiclick.server.problem_responses import FRAMEWORK_ERRORS, PROBLEM_TYPES, problem_type_of

SOURCES = Path(server.__file__).parent
DOCUMENT = SOURCES.parents[1] / "docs" / "api.md"
ERROR_CLASSES = [
    error_class
    for module in (errors, data_errors)
    for error_class in vars(module).values()
    if isinstance(error_class, type) and issubclass(error_class, AaiclickError)
]


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
def test_every_error_has_a_status_and_a_code(error_class):
    problem_type = problem_type_of(error_class("It broke."))
    assert 400 <= problem_type.status < 600
    assert problem_type.code.replace("_", "").isalpha()


def test_internal_error_details_are_secret():
    for error_class in (errors.UnreachableError, errors.UnauthorisedError, errors.SettingsError, AaiclickError):
        assert PROBLEM_TYPES[error_class].secret


def possible_codes() -> set[tuple[str, int]]:
    mapped = {(problem_type.code, int(problem_type.status)) for problem_type in PROBLEM_TYPES.values()}
    return mapped | {(code, int(status)) for status, (code, _) in FRAMEWORK_ERRORS.items()} | inline_codes()


def inline_codes() -> set[tuple[str, int]]:
    """Codes of direct calls: `problem_response(HTTPStatus.X, "code", …)`."""
    codes = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "problem_response",
                "problems.problem_response",
            ):
                status, *rest = node.args
                if isinstance(status, ast.Attribute) and isinstance(rest[0], ast.Constant):
                    codes.add((str(rest[0].value), int(HTTPStatus[status.attr])))
    return codes


def test_documented_error_codes_match_the_server() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \| .{10,} \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted((code, int(status)) for code, status in rows) == sorted(possible_codes())
    assert ("internal", 500) in inline_codes()
