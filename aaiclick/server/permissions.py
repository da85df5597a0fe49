"""What a credential allows, and what a route asks for. A route that asks for nothing is not served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from aaiclick.store.words import DEFAULT_ORG_ID


class Permission(StrEnum):
    """What a route asks for."""

    PUBLIC = "public"  # nothing at all
    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"
    WORKER = "worker"  # apart from the others: who runs tasks need not read jobs
    OPERATOR = "operator"  # an admin of the default org, which is that of whoever runs the installation
    OBSERVER = "observer"  # a reader of the default org


ALLOWED: dict[str, frozenset[Permission]] = {
    "reader": frozenset({Permission.READER}),
    "writer": frozenset({Permission.READER, Permission.WRITER}),
    "admin": frozenset({Permission.READER, Permission.WRITER, Permission.ADMIN}),
    "worker": frozenset({Permission.WORKER}),
}
"""Scope of a key, or role of a user → what it allows within its org."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: an org, and what it may do there. `actor` is what the audit log calls it."""

    org_id: UUID
    actor: str
    scopes: frozenset[str]

    @property
    def permissions(self) -> frozenset[Permission]:
        return permissions_of(self.scopes, operates=self.is_operator)

    @property
    def is_operator(self) -> bool:
        """Whether this is the org of whoever runs the installation."""
        return self.org_id == DEFAULT_ORG_ID


def permissions_of(scopes: Iterable[str], *, operates: bool) -> frozenset[Permission]:
    """Everything that these scopes allow."""
    found = {Permission.PUBLIC}.union(*(ALLOWED.get(scope, frozenset()) for scope in scopes))
    if operates and Permission.ADMIN in found:
        found.add(Permission.OPERATOR)
    if operates and Permission.READER in found:
        found.add(Permission.OBSERVER)
    return frozenset(found)
