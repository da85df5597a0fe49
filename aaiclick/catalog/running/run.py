"""One run of an operator: what it is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.queries.dataset_sql import PhysicalTable
from aaiclick.catalog.queries.lineage import Lineage
from aaiclick.catalog.running.ledger import Ledger
from aaiclick.catalog.running.work import Place, Work
from aaiclick.data import Object, create_object_from_query, create_object_from_value
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.types import quote_name
from aaiclick.orchestration.scope import TaskScope
from aaiclick.store.org_secrets import Secret


@dataclass(frozen=True)
class Rows:
    """Rows of an output: a SELECT that gives them, and where its columns come from if that is known."""

    select: str
    lineage: Lineage | None = None
    table: Object | None = field(default=None, repr=False, compare=False)
    """The temporary Object that `select` reads: its table is dropped with the last reference."""


class NotYet(Exception):  # noqa: N818  (not an error: the task is done, there is nothing to do)
    """An input has no rows yet: its first update will start this job again."""


@dataclass
class OperatorRun:
    """What an operator sees: its settings, the event, its inputs (or one partition of them), and its state.

    It returns the rows of each output by name, anything that becomes an Object; or None if there is nothing new.
    States that it sets are written with the completion of the task, and so are its outputs.
    """

    work: Work
    settings: BaseModel
    event: Mapping[str, Any]
    scope: TaskScope
    ledger: Ledger
    partition: str = ""
    driver: str | None = None
    states: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    secrets: tuple[Secret, ...] = ()
    """Those within the settings, with the hosts that they are bound to."""

    @property
    def data(self) -> DataContext:
        return get_data_context()

    def table(self, name: str) -> PhysicalTable:
        """An input as a table of queries; raises NotYet if it has no rows."""
        place = self._input(name)
        if place.layout is None:
            raise NotYet(f"The input {name!r} has no rows yet.")
        return place.physical(self.partition if name == self.driver else None)

    async def input(self, name: str) -> Object:
        """An input as an Object: a copy of its rows as they are now."""
        return await create_object_from_query(self.table(name).select())

    async def state(self, key: str = "default") -> dict[str, Any] | None:
        """What was remembered under a key, by the last task that completed."""
        if key in self.states:
            return self.states[key]
        return await self.ledger.state(self.work, self.work.memory, key)

    def remember(self, state: dict[str, Any], key: str = "default") -> None:
        self.states[key] = state

    async def rows(self, value: Any) -> Rows | None:
        """What an operator returned, as rows; None for nothing, and for a list without any."""
        if value is None or isinstance(value, Rows):
            return value
        if isinstance(value, list | tuple) and not cast("list[Any]", value):
            return None
        made = value if isinstance(value, Object) else await create_object_from_value(value)
        table = await made.materialize()
        names = ", ".join(quote_name(each) for each in table.columns)
        return Rows(f"SELECT {names} FROM {quote_name(table.table_id)} ORDER BY aai_id", table=table)  # noqa: S608

    def _input(self, name: str) -> Place:
        if name not in self.work.inputs:
            raise OperatorError(f"The job {self.work.name!r} has no input {name!r:.60}.", remedy="Add it to inputs.")
        return self.work.inputs[name]
