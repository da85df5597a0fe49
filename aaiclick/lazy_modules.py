"""Modules that are imported at their first use, so that short commands do not load what they do not need."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module; the first access to one of its names imports it.

    if TYPE_CHECKING:
        from aaiclick.catalog import deploy
    else:
        deploy = LazyModule("aaiclick.catalog.deploy")
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)
