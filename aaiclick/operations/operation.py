"""`@operation`: one use case, called by HTTP routes, pages and the local command line."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar
from uuid import UUID

from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.database_access import Databases, begin_transaction
from aaiclick.store.tenancy import audit

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Operation(Generic[P, T]):
    """A permission check and a transaction around a function of a connection, an actor and arguments."""

    function: Callable[Concatenate[Connection, Actor, P], Awaitable[T]]
    permission: Permission
    as_owner: bool
    """Whether it needs a connection without row-level security."""
    changes: bool

    async def __call__(self, connection: Connection, actor: Actor, *args: P.args, **kwargs: P.kwargs) -> T:
        actor.require(self.permission)
        own_transaction = self.changes and not connection.is_in_transaction()
        async with begin_transaction(connection) if own_transaction else nullcontext():
            return await self.function(connection, actor, *args, **kwargs)

    async def perform(self, databases: Databases, actor: Actor, *args: P.args, **kwargs: P.kwargs) -> T:
        """Perform it on a connection of its own."""
        async with databases.connect(as_owner=self.as_owner) as connection:
            return await self(connection, actor, *args, **kwargs)


@dataclass(frozen=True)
class DatabasesOperation(Generic[P, T]):
    """A permission check around a function that opens its own connections and transactions."""

    function: Callable[Concatenate[Databases, Actor, P], Awaitable[T]]
    permission: Permission

    async def perform(self, databases: Databases, actor: Actor, *args: P.args, **kwargs: P.kwargs) -> T:
        actor.require(self.permission)
        return await self.function(databases, actor, *args, **kwargs)


AnyOperation = Operation[..., Any] | DatabasesOperation[..., Any]

OPERATIONS: dict[str, AnyOperation] = {}
"""Operations by name; the HTTP client has a method of the same name and parameters for each."""


def operation(
    permission: Permission, *, as_owner: bool = False, changes: bool = True
) -> Callable[[Callable[Concatenate[Connection, Actor, P], Awaitable[T]]], Operation[P, T]]:
    """Declare an operation. One that `changes` something runs in one transaction with its audit entry."""

    def declare(function: Callable[Concatenate[Connection, Actor, P], Awaitable[T]]) -> Operation[P, T]:
        declared = Operation(function, permission, as_owner, changes)
        OPERATIONS[getattr(function, "__name__")] = declared  # noqa: B009  (a Callable has no __name__ in its type)
        return declared

    return declare


def databases_operation(
    permission: Permission,
) -> Callable[[Callable[Concatenate[Databases, Actor, P], Awaitable[T]]], DatabasesOperation[P, T]]:
    """Declare an operation that uses ClickHouse, or that computes between its transactions."""

    def declare(function: Callable[Concatenate[Databases, Actor, P], Awaitable[T]]) -> DatabasesOperation[P, T]:
        declared = DatabasesOperation(function, permission)
        OPERATIONS[getattr(function, "__name__")] = declared  # noqa: B009  (a Callable has no __name__ in its type)
        return declared

    return declare


def find_operation(resource: str, name: str) -> Any:
    """Import the operation of an endpoint: it has the same name, in the module of the same name."""
    return getattr(importlib.import_module(f"aaiclick.operations.{resource}"), name)


async def write_audit(
    connection: Connection,
    actor: Actor,
    action: str,
    target: object,
    detail: Mapping[str, object] | None = None,
    *,
    org_id: UUID | None = None,
) -> None:
    """Write an audit entry into the log of `org_id`, by default of the actor's org."""
    await audit.write_audit(
        connection,
        org_id=org_id or actor.org_id,
        actor=actor.name,
        action=action,
        target=str(target),
        request_id=actor.request_id,
        detail=detail,
    )
