"""Names of PostgreSQL statements: each name in the code exists, and each statement is used."""

from __future__ import annotations

import ast
from pathlib import Path

from aaiclick.store.statements import load_statements

PACKAGE = Path(__file__).parents[3] / "aaiclick"
TREES = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]


def test_statements_in_the_code_exist():
    names = {
        call.args[0].value
        for tree in TREES
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "statement"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    assert len(names) > 400
    assert names - load_statements().keys() == set()


def test_every_statement_is_used():
    texts = {node.value for tree in TREES for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert load_statements().keys() - texts == set()
