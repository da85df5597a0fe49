"""Run a command against the database or the server, and write its audit entry."""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from aaiclick import failpoints
from aaiclick.cli import remote
from aaiclick.cli.database import find_org_id
from aaiclick.store.tenancy import audit

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

T = TypeVar("T")


def audited_call_local_or_remote(
    org: str,
    action: str,
    target: str,
    local: Callable[[Connection, str, UUID], Awaitable[T]],
    remote_call: Callable[[Client], T],
    detail: Mapping[str, object] | None = None,
) -> T:
    """Change something of an organisation over HTTP, or in the database in one transaction with its audit entry."""

    async def run_audited(connection: Connection) -> T:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            result = await local(connection, target, org_id)
            await write_audit(connection, org_id, action, target, detail)
        return result

    return remote.call_local_or_remote(run_audited, lambda client: remote_call(remote.checked_client(client, org)))


def audited_transaction(connection: Connection) -> AbstractAsyncContextManager[object]:
    """Open the transaction of a change and its audit entry."""
    return failpoints.transaction(connection, "cli_change")


async def write_audit(
    connection: Connection, org_id: UUID, action: str, target: str, detail: Mapping[str, object] | None = None
) -> None:
    """Write an audit entry of the local user, in the transaction of the change."""
    await audit.write_audit(connection, org_id=org_id, actor=local_actor(), action=action, target=target, detail=detail)


def local_actor() -> str:
    """Return the audit actor of the operating system's user."""
    try:
        return f"local:{getpass.getuser()}"
    except (OSError, KeyError):  # the uid has no user name, as in some containers
        return f"local:{os.getuid()}"
