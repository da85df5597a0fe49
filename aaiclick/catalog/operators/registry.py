"""Operators by name: the built-in ones, and those that other packages offer by the entry point `aaiclick.operators`.

A definition says how the `config` of a job must look; it is checked when the DAG is read, long before a task runs.
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
from aaiclick.data.errors import nearest

ENTRY_POINT_GROUP = "aaiclick.operators"

Activation = Literal["source", "reactive"]


class Config(BaseModel):
    """Base of operators' settings: nothing unknown, nothing converted silently, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True)
class OperatorDefinition:
    """A kind of work: its settings, when it may run, how many outputs it has.

    `preset` is laid under what the user writes: a definition can be another one with its settings chosen.
    """

    name: str
    summary: str
    config: type[BaseModel]
    activations: frozenset[Activation] = frozenset({"source", "reactive"})
    min_outputs: int = 0
    max_outputs: int | None = None
    preset: Mapping[str, Any] = field(default_factory=dict[str, Any])
    run: Callable[[Any], Awaitable[Mapping[str, Any]]] | None = None
    """What does it: gets an `aaiclick.catalog.running.run.OperatorRun`, returns values by output.
    The built-in ones have theirs in `aaiclick.catalog.running.runners`.
    """

    def settings(self, config: Mapping[str, Any]) -> BaseModel:
        """The settings as the operator gets them; raises pydantic's ValidationError."""
        return self.config.model_validate({**self.preset, **config})


class Registry:
    """Definitions by name; plug-ins are loaded when a name is asked for that is not built in."""

    def __init__(self, built_in: Iterable[OperatorDefinition], plug_ins: Iterable[EntryPoint] | None = None) -> None:
        self._known = {each.name: each for each in built_in}
        self._plug_ins = plug_ins

    def names(self) -> list[str]:
        return sorted({*self._known, *(each.name for each in self._entry_points())})

    def find(self, name: str) -> OperatorDefinition:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._loaded(name)
        return found

    def _entry_points(self) -> list[EntryPoint]:
        if self._plug_ins is None:
            self._plug_ins = entry_points(group=ENTRY_POINT_GROUP)
        return list(self._plug_ins)

    def _loaded(self, name: str) -> OperatorDefinition:
        offered = [each for each in self._entry_points() if each.name == name]
        if not offered:
            raise OperatorError(f"There is no operator {name!r:.60}.", remedy=nearest(name, self.names()))
        if len({each.value for each in offered}) > 1:
            offers = ", ".join(sorted(each.value for each in offered))
            raise OperatorError(
                f"The operator {name!r} is offered more than once: {offers}.", remedy="Uninstall all but one package."
            )
        try:
            definition = offered[0].load()
        except Exception as error:
            raise OperatorError(
                f"The operator {name!r} cannot be loaded from {offered[0].value}: {error}.",
                remedy="Repair or uninstall the package that offers it.",
            ) from error
        if not isinstance(definition, OperatorDefinition) or definition.name != name:
            raise OperatorError(
                f"{offered[0].value}, offered as the operator {name!r}, is not a definition of that name.",
                remedy="The entry point must load an OperatorDefinition.",
            )
        return definition
