"""Who may see the text of a DAG: whoever may read every dataset that it names.

A part of it is not shown instead: names are in queries, comments and settings, and what is cut out tells of itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.catalog.dags.load import load_dag
from aaiclick.catalog.errors import DagError
from aaiclick.store import catalog_datasets as store

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.catalog_datasets import Reader
    from aaiclick.store.engine import Connection


async def may_read_text(connection: Connection, reader: Reader, version: asyncpg.Record | None) -> bool:
    """Whether the text of a version (id and yaml; None: there is none) names nothing that is hidden from the reader."""
    if version is None or reader.roles is None:
        return True
    try:
        published = [each.name or each.output for each in load_dag(version["yaml"]).publish]
    except DagError:
        return False
    return await store.may_read_version(connection, reader, version["id"], published)
