"""Registry of operators: built-in ones, and plug-ins from the entry point group `aaiclick.operators`.

An operator definition has the schema of `config`, which is checked when the DAG is loaded, before any task runs.
A plug-in's entry point loads an `OperatorDefinition`:

    [project.entry-points."aaiclick.operators"]
    geocode = "my_package.operators:GEOCODE"
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from aaiclick.catalog.errors import OperatorError
from aaiclick.data.errors import suggest_name

ENTRY_POINT_GROUP = "aaiclick.operators"

Activation = Literal["source", "reactive"]


class OperatorConfig(BaseModel):
    """Base of operators' settings: strict, immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True)
class OperatorDefinition:
    """An operator: its settings, allowed activations and number of outputs.

    `preset` are default settings, so that a definition can be a variant of another one.
    """

    name: str
    summary: str
    config: type[BaseModel]
    activations: frozenset[Activation] = frozenset({"source", "reactive"})
    min_outputs: int = 0
    max_outputs: int | None = None
    preset: Mapping[str, Any] = field(default_factory=dict[str, Any])
    run: Callable[[Any], Awaitable[Mapping[str, Any]]] | None = None
    """Receives an `aaiclick.catalog.execution.operator_run.OperatorRun`, returns values by output.
    Built-in operators have theirs in `aaiclick.catalog.execution.builtin_operators`.
    """

    def settings(self, config: Mapping[str, object]) -> BaseModel:
        """Validate the settings; raises pydantic's ValidationError."""
        return self.config.model_validate({**self.preset, **config})


class OperatorRegistry:
    """Operator definitions by name; plug-ins are loaded on first use."""

    def __init__(self, built_in: Iterable[OperatorDefinition], plug_ins: Iterable[EntryPoint] | None = None) -> None:
        self._definitions = {definition.name: definition for definition in built_in}
        self._plug_ins = plug_ins

    def list_names(self) -> list[str]:
        return sorted({*self._definitions, *(entry_point.name for entry_point in self._entry_points())})

    def find(self, name: str) -> OperatorDefinition:
        definition = self._definitions.get(name)
        if definition is None:
            definition = self._definitions[name] = self._load_plug_in(name)
        return definition

    def _entry_points(self) -> list[EntryPoint]:
        if self._plug_ins is None:
            self._plug_ins = entry_points(group=ENTRY_POINT_GROUP)
        return list(self._plug_ins)

    def _load_plug_in(self, name: str) -> OperatorDefinition:
        candidates = [entry_point for entry_point in self._entry_points() if entry_point.name == name]
        if not candidates:
            raise OperatorError(f"There is no operator {name!r:.60}.", remedy=suggest_name(name, self.list_names()))
        if len({entry_point.value for entry_point in candidates}) > 1:
            values = ", ".join(sorted(entry_point.value for entry_point in candidates))
            raise OperatorError(
                f"The operator {name!r} is offered by several packages: {values}.",
                remedy="Uninstall all but one package.",
            )
        try:
            definition = candidates[0].load()
        except Exception as error:
            raise OperatorError(
                f"The operator {name!r} cannot be loaded from {candidates[0].value}: {error}.",
                remedy="Repair or uninstall the package that offers it.",
            ) from error
        if not isinstance(definition, OperatorDefinition) or definition.name != name:
            raise OperatorError(
                f"{candidates[0].value}, offered as the operator {name!r}, is not a definition of that name.",
                remedy="The entry point must load an OperatorDefinition.",
            )
        return definition
