"""Metaclass that lets SQLAlchemy select the light classes: `select(Job).where(Job.status == "FAILED")`.

`Job`, `Task`, `Group` and `Worker` are slotted objects, since a DAG may have a million of them. In a query each stands
for the mapped class of the same name in `aaiclick.store.models`, which is imported at the first query only. Instances
are not affected.
"""

from __future__ import annotations

from importlib import import_module
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any


class Selectable(type):
    """Metaclass: slots read from the class are columns; columns without a slot are found as well."""

    def __clause_element__(cls) -> Any:
        """SQLAlchemy's protocol for objects that stand for a clause."""
        from sqlalchemy import inspect

        return inspect(_mapped_class(cls)).__clause_element__()

    if not TYPE_CHECKING:  # a checker sees the types of the instances' attributes

        def __getattribute__(cls, name: str) -> Any:
            value = super().__getattribute__(name)
            if type(value) is MemberDescriptorType:
                return getattr(_mapped_class(cls), name, value)
            return value

        def __getattr__(cls, name: str) -> Any:
            # `@dataclass` asks a class for defaults before it has slots; protocols of Python ask every class.
            if name.startswith("__") or "__slots__" not in cls.__dict__:
                raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
            return getattr(_mapped_class(cls), name)


def _mapped_class(cls: type) -> Any:
    return getattr(import_module("aaiclick.store.models"), cls.__name__, None)
