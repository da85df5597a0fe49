"""Resolve the entrypoint of a task to a function, if this worker may run it.

An entrypoint is text from a database or a request, so it must not be able to choose any code. A worker runs

- functions of modules that its operator named (`--import`, AAICLICK_TASK_MODULES), and of modules below those;
- without AAICLICK_TASK_MODULES, and only while the installation has one organisation, functions of modules with a file
  below the worker's directory, except installed packages there (see `own_code_detection`);
- handlers (`@handler`) that are defined in such modules;
- the tasks that aaiclick itself consists of (`OWN_TASKS`).

The location of a module is checked before it is imported, since an import runs its code. A function must be defined in
an allowed module: functions that a module imports are not entrypoints. `__main__` is a different program in every
process and is never allowed; `run_job_test` uses function objects of its own process.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from aaiclick.errors import EntrypointError
from aaiclick.orchestration.decorators import JobFunction, TaskFunction
from aaiclick.orchestration.handler_registry import Function, find_handler, has_handler, local_function
from aaiclick.orchestration.worker.own_code_detection import OwnCode, find_files

OWN_TASKS = {
    "aaiclick.orchestration.compensation": frozenset({"run_compensations"}),
    "aaiclick.orchestration.jobs_by_function_name": frozenset({"run_job_handlers"}),
    "aaiclick.orchestration.approvals": frozenset({"run_approval"}),
    "aaiclick.orchestration.waits": frozenset(
        {"run_sleep", "run_until", "run_wait_for_event", "run_wait_for_job", "run_wait_for_turn"}
    ),
    "aaiclick.operators.chunk_tasks": frozenset({"map_rows", "foreach_rows", "reduce_rows", "chunk", "collect"}),
    "aaiclick.orchestration.select_result_item": frozenset({"select_item"}),
    "aaiclick.catalog.execution.definition_task": frozenset({"run_definition"}),
}
"""Tasks of aaiclick itself, by module. Their callbacks are resolved by the same rules as other entrypoints."""


class Entrypoints:
    """Resolves entrypoints, with a cache."""

    def __init__(
        self,
        named_modules: Sequence[str] = (),
        *,
        directory: Path | None = None,
        data_directories: Sequence[Path] = (),
        in_process: bool = False,
        on_import: Callable[[], None] | None = None,
    ) -> None:
        """Create the rules for one worker.

        `directory` contains the user's own code; None: only named modules are allowed. `in_process`: also allow
        functions that this process used as tasks or registered as handlers. `on_import` is called after an import.
        """
        self._named = tuple(named_modules)
        self._own_code = None if directory is None else OwnCode(directory, data_directories)
        self._in_process = in_process
        self._on_import = on_import
        self._cache: dict[tuple[str, str | None, bool], Function] = {}

    def resolve(self, task_type: str, entrypoint: str | None, *, shared: bool) -> Function:
        """The function of a task; raises EntrypointError, which is permanent.

        `shared`: the installation has several organisations.
        """
        key = task_type, entrypoint, shared
        function = self._cache.get(key)
        if function is None:
            found_function = (
                self._find_allowed_handler(task_type, shared)
                if entrypoint is None
                else self.load(entrypoint, shared=shared)
            )
            function = self._cache[key] = found_function
        return function

    def load(self, entrypoint: str, *, shared: bool) -> Function:
        """The function of an import path; raises EntrypointError."""
        module_name, attribute = _split_entrypoint(entrypoint)
        if self._in_process and not shared and (local := local_function(f"{module_name}.{attribute}")) is not None:
            return _unwrap_function(local)
        if attribute in OWN_TASKS.get(module_name, ()):
            return cast("Function", getattr(importlib.import_module(module_name), attribute))
        if module_name.partition(".")[0] == "__main__":
            raise EntrypointError(
                f"The entrypoint {entrypoint!r} cannot be run: __main__ is a different program in every process.",
                remedy="Put the function into a module of its own, and use the name of that module.",
            )
        if not self._is_allowed(module_name, shared):
            raise self._not_allowed_error(entrypoint, module_name, shared)
        function = _load_attribute(entrypoint, module_name, attribute)
        if self._on_import is not None:
            self._on_import()
        if not self._is_allowed(module_name, shared):  # the import may have loaded another file than the lookup found
            raise self._not_allowed_error(entrypoint, module_name, shared)
        if not _is_function(function):
            raise EntrypointError(f"The entrypoint {entrypoint!r} is not a function.", remedy="Name a function.")
        if not self._is_allowed(defining_module(function), shared):
            raise EntrypointError(
                f"The entrypoint {entrypoint!r} is not a function of that module: it is imported there.",
                remedy="Name a function of your own that calls it.",
            )
        return _unwrap_function(function)

    def _find_allowed_handler(self, task_type: str, shared: bool) -> Function:
        if not has_handler(task_type):
            self._import_named_modules()
        function = find_handler(task_type)
        module_name = defining_module(function)
        if self._is_allowed(module_name, shared) or (self._in_process and not shared):
            return function
        raise self._not_allowed_error(
            f"{module_name}.{getattr(function, '__qualname__', task_type)}", module_name, shared
        )

    def _import_named_modules(self) -> None:
        """Import the modules of AAICLICK_TASK_MODULES, which are otherwise imported by their first entrypoint."""
        for name in self._named:
            if name in sys.modules:
                continue
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                    continue  # it is installed on other workers
                raise EntrypointError(
                    f"The module {name!r} of AAICLICK_TASK_MODULES cannot be imported: {error}.",
                    remedy="Install what it needs where the worker runs.",
                ) from error
            if self._on_import is not None:
                self._on_import()

    def _is_allowed(self, module_name: str, shared: bool) -> bool:
        if module_name.partition(".")[0] == "__main__":
            return False
        if any(module_name == name or module_name.startswith(f"{name}.") for name in self._named):
            return True
        if shared or self._own_code is None or module_name.partition(".")[0] == "aaiclick":
            return False
        return self._own_code.contains_module(module_name)

    def _not_allowed_error(self, entrypoint: str, module_name: str, shared: bool) -> EntrypointError:
        name_it = f"name its module where the worker runs: --import {module_name}, or in AAICLICK_TASK_MODULES."
        if shared:
            return EntrypointError(
                f"The entrypoint {entrypoint!r} is in no module that this worker was given; with several organisations "
                "it runs no other.",
                remedy=name_it[:1].upper() + name_it[1:],
            )
        if self._own_code is None:
            return EntrypointError(
                f"The entrypoint {entrypoint!r} is outside of the allowed modules ({', '.join(self._named)}).",
                remedy="Add its module to AAICLICK_TASK_MODULES where the worker runs.",
            )
        if not find_files(module_name):
            return EntrypointError(
                f"The entrypoint {entrypoint!r} cannot be imported: there is no module {module_name!r}.",
                remedy="Run the worker where the module is importable: in its directory, or with it installed "
                "and named by --import or AAICLICK_TASK_MODULES.",
            )
        return EntrypointError(
            f"The entrypoint {entrypoint!r} is in no module of your own: those are below the worker's directory, and "
            "not among installed packages.",
            remedy=f"Start the worker in the directory of the module, or {name_it}",
        )


def _split_entrypoint(entrypoint: str) -> tuple[str, str]:
    path = entrypoint.replace(":", ".")
    module_name, _, attribute = path.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in path.split(".")):
        raise EntrypointError(f"{entrypoint!r} is no entrypoint.", remedy="Write package.module.function.")
    return module_name, attribute


def _load_attribute(entrypoint: str, module_name: str, attribute: str) -> Any:
    """Attribute of a module. A module's `__getattr__` is not called, since it could return anything."""
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise EntrypointError(
            f"The entrypoint {entrypoint!r} cannot be imported: {error}.",
            remedy="Run the worker where the module is importable: in its directory, or with it installed.",
        ) from error
    if attribute not in vars(module) or attribute.startswith("__"):
        raise EntrypointError(
            f"The module {module_name!r} has no function {attribute!r}.",
            remedy="Correct the name of the entrypoint; if the function is new, start the worker again.",
        )
    return vars(module)[attribute]


def _is_function(value: object) -> bool:
    """Whether a value is a function; classes and objects with `__call__` but no `__qualname__` are not."""
    while isinstance(value, functools.partial):
        value = cast("functools.partial[Any]", value).func
    return callable(value) and not inspect.isclass(value) and hasattr(value, "__qualname__")


def defining_module(function: Function) -> str:
    """Name of the module that defines a function; for a partial, of the function that it calls."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return str(getattr(function, "__module__", None) or "builtins")


def _unwrap_function(function: Any) -> Function:
    """The plain function of a @task or @job; a call of the latter would only create another task."""
    if isinstance(function, TaskFunction):
        return cast("TaskFunction[..., Any]", function).function
    if isinstance(function, JobFunction):
        return function.as_task()
    return function
