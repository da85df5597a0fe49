"""Run by Alembic for each command: uses the connection that `alembic_commands` put into the configuration."""

from __future__ import annotations

from typing import Any

from alembic import context

from aaiclick.store.migrations import VERSION_TABLE
from aaiclick.store.models import metadata


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Compare our tables only: the database may contain others."""
    return kind != "table" or name in metadata.tables


def _run() -> None:
    options: dict[str, Any] = {
        "target_metadata": metadata,
        "version_table": VERSION_TABLE,
        "include_name": _is_ours,
        "compare_server_default": True,
    }
    if context.is_offline_mode():
        context.configure(dialect_name="postgresql", literal_binds=True, **options)
    else:
        context.configure(connection=context.config.attributes["connection"], **options)
    with context.begin_transaction():
        context.run_migrations()


_run()
