"""Updates of tasks set `updated_at`: the table has no trigger that does (decision 23)."""

from __future__ import annotations

import sqlglot
from sqlglot import expressions

from aaiclick.store.statements import load_statements


def test_every_update_of_tasks_sets_updated_at() -> None:
    updates: dict[str, bool] = {}
    for name, text in load_statements().items():
        if "UPDATE tasks" not in text:
            continue
        for command in sqlglot.parse(text, dialect="postgres"):
            for update in command.find_all(expressions.Update) if command is not None else ():
                if update.this.name == "tasks":
                    columns = {item.this.name for item in update.expressions if isinstance(item, expressions.EQ)}
                    updates[name] = "updated_at" in columns
    assert len(updates) > 15
    assert [name for name, is_set in updates.items() if not is_set] == []
