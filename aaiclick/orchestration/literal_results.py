"""Store of literals for the data layer: small results that are kept in PostgreSQL with their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from aaiclick.orchestration.context import current_or_new_context
from aaiclick.orchestration.task_context import current_scope
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tables import literal_results
from aaiclick.store.tables.literal_results import Reservation

POLL_SECONDS = 0.05


class _LiteralGateway(Protocol):
    """Part of AttemptGateway that is used here."""

    async def load_literals(self, table_ids: Sequence[str]) -> Mapping[str, str]: ...
    async def reserve_literal(self, table_id: str) -> Reservation: ...
    async def replace_literal(self, table_id: str) -> None: ...
    async def abandon_literal(self, table_id: str) -> None: ...


class ContextLiterals:
    """Literals of the organisation of the running task; in a script, those of the default one."""

    async def load_literals(self, table_names: Sequence[str]) -> Mapping[str, str]:
        return await _find_gateway().load_literals(table_names)

    async def reserve_literal(self, table_name: str) -> bool:
        """Reserve the table of a literal; waits while another process creates it."""
        while True:
            reservation = await _find_gateway().reserve_literal(table_name)
            if reservation is not Reservation.TAKEN:
                return reservation is Reservation.GRANTED
            await asyncio.sleep(POLL_SECONDS)

    async def replace_literal(self, table_name: str) -> None:
        await _find_gateway().replace_literal(table_name)

    async def abandon_literal(self, table_name: str) -> None:
        await _find_gateway().abandon_literal(table_name)


def _find_gateway() -> _LiteralGateway:
    scope = current_scope()
    return _ScriptGateway() if scope is None else scope.gateway


class _ScriptGateway:
    """Gateway of code outside of tasks, over the current context or a connection of its own."""

    async def load_literals(self, table_ids: Sequence[str]) -> Mapping[str, str]:
        async with current_or_new_context() as context, context.connection() as connection:
            return await literal_results.load_literals(connection, table_ids, DEFAULT_ORG_ID)

    async def reserve_literal(self, table_id: str) -> Reservation:
        async with current_or_new_context() as context, context.connection() as connection:
            return await literal_results.reserve_literal_table(connection, table_id, DEFAULT_ORG_ID)

    async def replace_literal(self, table_id: str) -> None:
        async with current_or_new_context() as context, context.connection() as connection:
            await literal_results.replace_literal(connection, table_id, DEFAULT_ORG_ID)

    async def abandon_literal(self, table_id: str) -> None:
        async with current_or_new_context() as context, context.connection() as connection:
            await literal_results.abandon_literal_table(connection, table_id, DEFAULT_ORG_ID)
