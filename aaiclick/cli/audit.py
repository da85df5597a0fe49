"""Transactions and audit entries of local commands."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from aaiclick import failpoints
from aaiclick.store.tenancy import audit

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection

T = TypeVar("T")


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
