"""Checks the functions of `python` definitions where their modules can be imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aaiclick.catalog.dags.load import locate_findings
from aaiclick.catalog.dags.model import Dag
from aaiclick.catalog.dags.python_function_checks import check_functions
from aaiclick.catalog.errors import DagError
from aaiclick.cli.entrypoint_import import import_user_module, load_target, split_entrypoint
from aaiclick.cli.output import print_message
from aaiclick.errors import EntrypointError
from aaiclick.orchestration.decorators import JobFunction, TaskFunction


def check_python_functions(file: str, dag: Dag, text: str) -> None:
    """Raise DagError if a function does not exist or does not accept its inputs and arguments."""
    sys.path.insert(0, str(Path.cwd()))
    missing_modules: set[str] = set()

    def resolve(name: str) -> Callable[..., object] | None:
        module = split_entrypoint(name)[0]
        try:
            import_user_module(module)
        except ModuleNotFoundError:
            missing_modules.add(module)
            return None
        return _unwrap_function(name, load_target(name))

    problems = locate_findings(text, check_functions(dag, resolve))
    if problems:
        raise DagError(file, problems)
    if missing_modules:
        print_message(f"Not checked: functions of {', '.join(sorted(missing_modules))}, which cannot be imported here.")


def _unwrap_function(name: str, target: Any) -> Callable[..., object]:
    if isinstance(target, JobFunction):
        raise EntrypointError(f"{name} is a @job.", remedy="Name a @task or a plain function.")
    function = target.function if isinstance(target, TaskFunction) else target  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not callable(function):  # pyright: ignore[reportUnknownArgumentType]
        raise EntrypointError(f"{name} is not a function.", remedy="Name a @task or a plain function.")
    return function  # pyright: ignore[reportUnknownVariableType]
