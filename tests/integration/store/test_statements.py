"""Statements in `sql/` fit the schema."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import asyncpg

from aaiclick import store
from aaiclick.store.statements import load_statements, statement


async def test_every_statement_can_be_prepared(db: asyncpg.Connection) -> None:
    errors: dict[str, str] = {}
    for name, text in load_statements().items():
        try:
            async with db.transaction():
                for command in [text] if "$$" in text else text.split(";\n"):
                    await db.prepare(command)
        except asyncpg.PostgresError as error:
            errors[name] = str(error)
    assert errors == {}


def find_typed_statements() -> Iterator[tuple[type, str]]:
    """(row type, statement) of each function of the store that fetches rows as dataclasses."""
    for module_info in pkgutil.walk_packages(store.__path__, "aaiclick.store."):
        if ".migrations" in module_info.name:
            continue
        module = importlib.import_module(module_info.name)
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(function, ast.AsyncFunctionDef):
                continue
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            named = {ast.unparse(call.func): call for call in calls}
            fetch = named.get("fetch_rows") or named.get("fetch_row")
            names = [call.args[0] for call in calls if ast.unparse(call.func) == "statement"]
            if fetch is not None and isinstance(fetch.args[1], ast.Name) and hasattr(module, fetch.args[1].id):
                for name in names:
                    if isinstance(name, ast.Constant):
                        yield getattr(module, fetch.args[1].id), str(name.value)


async def test_typed_rows_have_the_columns_of_their_statements(db: asyncpg.Connection) -> None:
    typed = list(find_typed_statements())
    assert len(typed) > 10
    different: list[str] = []
    for row_type, name in typed:
        columns = {attribute.name for attribute in (await db.prepare(statement(name))).get_attributes()}
        fields = {field.name for field in dataclasses.fields(row_type)}
        if columns and columns != fields:
            different.append(f"{name}, {row_type.__name__}: {sorted(columns ^ fields)}")
    assert different == []
