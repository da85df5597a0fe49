"""From the name of a task to the function that does it, if that function may be run at all.

A name comes out of a database, so it decides what code runs: it must not be able to name any code. Without a setting,
a task may be

- a function of the user's own code: a module outside the standard library and outside the installed packages;
- a handler registered under a type (`@handler("email:send")`), or a function marked with `@task`, wherever it is;
- a function of aaiclick itself that is marked as one.

AAICLICK_TASK_MODULES names modules (and all below them) instead: then only those, and what is registered.
The module is judged before it is imported: importing runs code. And so is where the function comes from: a module that
needs `from os import system` for itself does not offer it to whoever may submit tasks.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any, cast

from aaiclick.errors import EntrypointError
from aaiclick.orchestration.decorators import JobFunction
from aaiclick.orchestration.handlers import Function, find_handler

MARK = "__aaiclick_task__"
"""Attribute of a function that may be an entrypoint wherever it is defined."""

OWN = ("aaiclick.operators.steps", "aaiclick.catalog.running.task")
"""Modules of ours that hold tasks."""

_INSTALLED = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")})


class Entrypoints:
    """Resolves names once and remembers the answer."""

    def __init__(self, allowed_modules: tuple[str, ...] = ()) -> None:
        self._allowed = allowed_modules
        self._known: dict[tuple[str, str | None], Function] = {}

    def resolve(self, task_type: str, entrypoint: str | None) -> Function:
        """The function of a task; raises EntrypointError, which no retry mends."""
        found = self._known.get((task_type, entrypoint))
        if found is None:
            found = self._known[task_type, entrypoint] = self._find(task_type, entrypoint)
        return found

    def _find(self, task_type: str, entrypoint: str | None) -> Function:
        return find_handler(task_type) if entrypoint is None else self.load(entrypoint)

    def load(self, entrypoint: str) -> Function:
        """The function of an import path; raises EntrypointError."""
        module_name, _, attribute = entrypoint.replace(":", ".").rpartition(".")
        if not module_name or not all(part.isidentifier() for part in entrypoint.replace(":", ".").split(".")):
            raise EntrypointError(f"{entrypoint!r} is no entrypoint.", remedy="Write package.module.function.")
        trusted = self._trusts(module_name)
        if not trusted and module_name not in sys.modules and module_name not in OWN:
            raise self._refusal(entrypoint)
        try:
            function = getattr(importlib.import_module(module_name), attribute)
        except ModuleNotFoundError as error:
            raise EntrypointError(
                f"The entrypoint {entrypoint!r} cannot be imported: {error}.",
                remedy="Run the worker where the module is importable: in its directory, or with it installed.",
            ) from error
        except AttributeError:
            raise EntrypointError(
                f"The module {module_name!r} has no function {attribute!r}.",
                remedy="Correct the name of the entrypoint; if the function is new, start the worker again.",
            ) from None
        if getattr(function, MARK, False):
            return getattr(function, "function", function)  # `@task` wraps it: calling the wrapper makes a Task
        if not trusted:
            raise self._refusal(entrypoint)
        if isinstance(function, JobFunction):
            return function.as_task()  # calling it would make another job
        if not callable(function):
            raise EntrypointError(f"The entrypoint {entrypoint!r} is not a function.", remedy="Name a function.")
        if not self._is_of(function, module_name):
            raise EntrypointError(
                f"The entrypoint {entrypoint!r} is not a function of that module: it is imported there.",
                remedy="Name a function of your own that calls it.",
            )
        return function

    def _is_of(self, function: Function, module_name: str) -> bool:
        """Whether it is defined there, in the same package, or in another place that is trusted."""
        while isinstance(function, functools.partial):
            function = cast("functools.partial[Any]", function).func
        where = str(getattr(function, "__module__", None) or "builtins")
        return where.partition(".")[0] == module_name.partition(".")[0] or self._trusts(where)

    def _trusts(self, module_name: str) -> bool:
        if self._allowed:
            return any(module_name == name or module_name.startswith(f"{name}.") for name in self._allowed)
        top = module_name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "aaiclick":
            return False
        if top == "__main__":
            return True
        spec = importlib.util.find_spec(top)
        places = [*(spec.submodule_search_locations or []), spec.origin or ""] if spec else []
        return not any(_is_installed(Path(place)) for place in places if place)

    def _refusal(self, entrypoint: str) -> EntrypointError:
        if self._allowed:
            return EntrypointError(
                f"The entrypoint {entrypoint!r} is outside of the allowed modules ({', '.join(self._allowed)}).",
                remedy="Add its module to AAICLICK_TASK_MODULES where the worker runs.",
            )
        return EntrypointError(
            f"The entrypoint {entrypoint!r} is code of an installed package, which a task may not name unasked.",
            remedy="Mark the function with @task, or name its module in AAICLICK_TASK_MODULES where the worker runs.",
        )


def _is_installed(place: Path) -> bool:
    return any(place.resolve().is_relative_to(directory) for directory in _INSTALLED)
