"""One run of an operator: its inputs, settings and state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.execution.definition_context import DatasetLocation, DefinitionContext
from aaiclick.catalog.queries.column_lineage import Lineage
from aaiclick.catalog.queries.table_rewrite import PhysicalTable
from aaiclick.data import Object, create_object_from_query, create_object_from_value
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.types import quote_name
from aaiclick.orchestration.task_context import TaskScope
from aaiclick.store.catalog.definition_runs import AlertTransition
from aaiclick.store.tenancy.secrets import Secret


@dataclass(frozen=True)
class OutputRows:
    """Rows of an output: a SELECT, and the lineage of its columns if known."""

    select: str
    lineage: Lineage | None = None
    table: Object | None = field(default=None, repr=False, compare=False)
    """The temporary Object that `select` reads; its table is dropped with the last reference."""


class InputNotReady(Exception):  # noqa: N818  (not an error: the task completes without output)
    """An input has no rows yet; its first update starts the definition again."""


@dataclass
class OperatorRun:
    """What an operator receives: its settings, the event, its inputs (or one partition of them), and its state.

    It returns the rows of each output by name, as anything that can become an Object; None if nothing is new. States
    and outputs are written with the completion of the task.
    """

    definition: DefinitionContext
    settings: BaseModel
    event: Mapping[str, Any]
    scope: TaskScope
    partition: str = ""
    driver: str | None = None
    states: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    secrets: tuple[Secret, ...] = ()
    """Secrets used in the settings, with the hosts they are bound to."""
    alerts: list[AlertTransition] = field(default_factory=list["AlertTransition"])
    """Alerts that were raised or cleared; the completion opens and closes their incidents."""

    @property
    def data(self) -> DataContext:
        return get_data_context()

    def table(self, name: str) -> PhysicalTable:
        """Return an input as a table for queries; raises InputNotReady if it has no rows."""
        location = self._find_input(name)
        if location.layout is None:
            raise InputNotReady(f"The input {name!r} has no rows yet.")
        return location.physical(self.partition if name == self.driver else None)

    async def input(self, name: str) -> Object:
        """Return an input as an Object: a copy of its current rows."""
        return await create_object_from_query(self.table(name).select())

    async def state(self, key: str = "default") -> dict[str, Any] | None:
        """Return the state that the last completed task stored under a key."""
        if key in self.states:
            return self.states[key]
        return await self.scope.gateway.get_state(self.definition.memory, key)

    def remember(self, state: dict[str, object], key: str = "default") -> None:
        self.states[key] = state

    async def rows(self, value: Any) -> OutputRows | None:
        """Convert an operator's return value to rows; None for None and for an empty list."""
        if value is None or isinstance(value, OutputRows):
            return value
        if isinstance(value, list | tuple) and not cast("list[Any]", value):
            return None
        object_ = value if isinstance(value, Object) else await create_object_from_value(value)
        table = await object_.materialize()
        await table.store_literal()
        names = ", ".join(quote_name(column) for column in table.columns)
        return OutputRows(f"SELECT {names} FROM {quote_name(table.table_id)} ORDER BY aai_id", table=table)  # noqa: S608

    def _find_input(self, name: str) -> DatasetLocation:
        if name not in self.definition.inputs:
            raise OperatorError(
                f"The definition {self.definition.name!r} has no input {name!r:.60}.", remedy="Add it to inputs."
            )
        return self.definition.inputs[name]
