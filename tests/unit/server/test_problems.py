"""Every code that the server can answer is in the table of the documentation, with its status, and nothing else is."""

from __future__ import annotations

import ast
import re
from http import HTTPStatus
from pathlib import Path

from aaiclick import server
from aaiclick.server.problems import KINDS, UNROUTED

SOURCES = Path(server.__file__).parent
DOCUMENT = SOURCES.parents[1] / "docs" / "api.md"


def answered() -> set[tuple[str, int]]:
    kinds = {(kind.code, int(kind.status)) for kind in KINDS.values()}
    return kinds | {(code, int(status)) for status, (code, _) in UNROUTED.items()} | said_in_passing()


def said_in_passing() -> set[tuple[str, int]]:
    """Codes that are written where a problem is made: `respond(HTTPStatus.X, "code", …)`."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("respond", "problems.respond"):
                status, *rest = node.args
                if isinstance(status, ast.Attribute) and isinstance(rest[0], ast.Constant):
                    found.add((str(rest[0].value), int(HTTPStatus[status.attr])))
    return found


def test_the_table_of_codes_is_what_the_server_can_answer() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \| .{10,} \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted((code, int(status)) for code, status in rows) == sorted(answered())
    assert ("internal", 500) in said_in_passing()
