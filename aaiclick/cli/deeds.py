"""Deeds, near and from afar; and the record of those near, as the API keeps one of those over HTTP."""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from aaiclick import faults
from aaiclick.cli import remote
from aaiclick.cli.database import org_id_of
from aaiclick.store import audit

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

T = TypeVar("T")


def do(
    org: str,
    action: str,
    target: str,
    near: Callable[[Connection, str, UUID], Awaitable[T]],
    afar: Callable[[Client], T],
    detail: Mapping[str, Any] | None = None,
) -> T:
    """Do something to what an organisation has: in the database, in one transaction with its record, or over HTTP."""

    async def work(connection: Connection) -> T:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            done = await near(connection, target, org_id)
            await note_deed(connection, org_id, action, target, detail)
        return done

    return remote.reach(work, lambda client: afar(remote.of_org(client, org)))


def recorded(connection: Connection) -> AbstractAsyncContextManager[Any]:
    """The transaction of a deed and its record."""
    return faults.transaction(connection, "deed")


async def note_deed(
    connection: Connection, org_id: UUID, action: str, target: str, detail: Mapping[str, Any] | None = None
) -> None:
    """Write a deed into the audit log, in the transaction of the deed."""
    await audit.write_audit(connection, org_id=org_id, actor=actor(), action=action, target=target, detail=detail)


def actor() -> str:
    """Who sits at this machine, as far as the system says."""
    try:
        return f"local:{getpass.getuser()}"
    except (OSError, KeyError):  # a user without a name, as in some containers
        return f"local:{os.getuid()}"
