"""The record of what is done beside the databases, as the API keeps one of what is done over HTTP."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.store import audit

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


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
