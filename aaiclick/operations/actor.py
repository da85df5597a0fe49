"""Actors and permissions: which scopes of a credential allow which operations."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import ForbiddenError
from aaiclick.store.enums import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.catalog.datasets import Reader


class Permission(StrEnum):
    """What an operation or a route requires."""

    PUBLIC = "public"  # no credential
    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"
    WORKER = "worker"  # separate from the others: a worker need not read jobs
    OPERATOR = "operator"  # an admin of the default org, which operates the installation
    OBSERVER = "observer"  # a reader of the default org


SCOPE_PERMISSIONS: dict[str, frozenset[Permission]] = {
    "reader": frozenset({Permission.READER}),
    "writer": frozenset({Permission.READER, Permission.WRITER}),
    "admin": frozenset({Permission.READER, Permission.WRITER, Permission.ADMIN}),
    "worker": frozenset({Permission.WORKER}),
}
"""Scope of a key, or role of a user → permissions within its org."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Performs operations: an org, the name in the audit log, and the scopes of the credential."""

    org_id: UUID
    name: str
    scopes: frozenset[str]
    request_id: str | None = None
    is_local: bool = False
    sees_all_orgs: bool = False
    """The local command line without --org sees the work of every organisation."""
    reads_as: Reader | None = None
    """The reader of datasets if it is not the actor: `--as USER` of the local command line."""

    @property
    def permissions(self) -> frozenset[Permission]:
        return scope_permissions(self.scopes, is_operator=self.is_operator)

    @property
    def is_operator(self) -> bool:
        """Whether the actor belongs to the org that operates the installation."""
        return self.is_local or self.org_id == DEFAULT_ORG_ID

    @property
    def visible_org_id(self) -> UUID | None:
        """The org of the work that the actor sees; None for every org."""
        return None if self.sees_all_orgs else self.org_id

    def sees(self, org_id: UUID) -> bool:
        return self.sees_all_orgs or org_id == self.org_id

    def require(self, permission: Permission) -> None:
        """Raise ForbiddenError unless the actor has the permission."""
        if permission not in self.permissions:
            raise ForbiddenError(
                f"This needs the permission {permission.value!r}, which this credential does not have.",
                remedy="Use a key with that scope; an admin of your organisation can create one.",
            )


ANONYMOUS = Actor(DEFAULT_ORG_ID, "anonymous", frozenset())
"""The actor of public operations: a token in the request is the credential."""


def scope_permissions(scopes: Iterable[str], *, is_operator: bool) -> frozenset[Permission]:
    """All permissions of these scopes."""
    permissions = {Permission.PUBLIC}.union(*(SCOPE_PERMISSIONS.get(scope, frozenset()) for scope in scopes))
    if is_operator and Permission.ADMIN in permissions:
        permissions.add(Permission.OPERATOR)
    if is_operator and Permission.READER in permissions:
        permissions.add(Permission.OBSERVER)
    return frozenset(permissions)


def local_actor(org_id: UUID = DEFAULT_ORG_ID, *, sees_all_orgs: bool = True) -> Actor:
    """The user of this machine, with all permissions."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        user = str(os.getuid())
    return Actor(org_id, f"local:{user}", frozenset(SCOPE_PERMISSIONS), is_local=True, sees_all_orgs=sees_all_orgs)
