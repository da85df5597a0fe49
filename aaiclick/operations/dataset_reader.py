"""The actor as a reader of datasets, which decides what an operation hides."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.operations.actor import Actor, Permission
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.ui.dag_queries import list_user_roles

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


async def dataset_reader(connection: Connection, actor: Actor) -> Reader:
    """Admins see all datasets, users what their roles may read, other keys none."""
    if actor.reads_as is not None:
        return actor.reads_as
    if Permission.ADMIN in actor.permissions:
        return Reader(actor.org_id, None)
    actor_type, _, user_id = actor.name.partition(" ")
    if actor_type != "user":
        return Reader(actor.org_id)
    return Reader(actor.org_id, frozenset(await list_user_roles(connection, actor.org_id, UUID(user_id))))
