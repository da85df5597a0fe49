"""Statements in `sql/` fit the schema."""

from __future__ import annotations

import asyncpg

from aaiclick.store.statements import load_statements


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
