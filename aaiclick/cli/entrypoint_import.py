"""Import of the module that an entry point names, with the errors of the user's own code."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from aaiclick.errors import EntrypointError
from aaiclick.orchestration.decorators import JobFunction, TaskFunction
from aaiclick.orchestration.pending_job import refuse_submissions_of_import
from aaiclick.tracebacks import report_user_errors

MAX_NAMES = 8
PUBLIC_MODULES = ("aaiclick.orchestration", "aaiclick.data", "aaiclick.operators", "aaiclick.catalog")


def split_entrypoint(entrypoint: str) -> tuple[str, str]:
    """Module and function of `package.module.function`."""
    path = entrypoint.replace(":", ".")
    module, _, attribute = path.rpartition(".")
    if "/" in path or ".py." in path or attribute == "py":
        raise EntrypointError(f"{entrypoint!r} is a file name.", remedy=_name_function_of_file(entrypoint))
    if not module or not all(part.isidentifier() for part in path.split(".")):
        raise EntrypointError(
            f"{entrypoint!r} has no function name."
            if path.isidentifier()
            else f"{entrypoint!r} is not the name of a function.",
            remedy=f"Add the function: {path}.FUNCTION" if path.isidentifier() else "Write package.module.function.",
        )
    return module, attribute


def _name_function_of_file(entrypoint: str) -> str:
    """Remedy for the name of a file: its module, as seen from this directory."""
    file, _, function = entrypoint.replace(".py.", ".py:").partition(":")
    path = Path(file).absolute()
    if path.suffix not in (".py", ""):  # shop/jobs.nightly
        path, function = path.with_suffix(""), path.suffix[1:]
    directory = Path.cwd()
    inside = path.is_relative_to(directory)
    module = ".".join((path.relative_to(directory) if inside else Path(path.name)).with_suffix("").parts)
    if not all(part.isidentifier() for part in module.split(".")):
        return "Write package.module.function; each name consists of letters, digits and '_'."
    command = f"aaiclick run {module}.{function or 'FUNCTION'}"
    return f"Name a function: {command}" if inside else f"Name a function: cd {path.parent} && {command}"


def is_missing(error: ImportError, module_name: str) -> bool:
    """Whether the module itself does not exist, and not one that it imports."""
    missing = error.name or ""
    return isinstance(error, ModuleNotFoundError) and (module_name == missing or module_name.startswith(f"{missing}."))


def import_user_module(module_name: str) -> ModuleType:
    """Import a module; raises ModuleNotFoundError only if it does not exist, else errors with the user's line."""
    with report_user_errors(f"The import of {module_name}", "Correct the file and run the command again."):
        try:
            with refuse_submissions_of_import(module_name):
                return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not is_missing(error, module_name):
                error.msg = f"{error.msg} (is it installed? pip install {(error.name or '').partition('.')[0]})"
                raise
        except ImportError as error:
            error.msg = _describe_import_error(error, module_name)
            raise
    raise ModuleNotFoundError(f"There is no module {module_name!r}.", name=module_name)


def _describe_import_error(error: ImportError, module_name: str) -> str:
    """Message of an import error; for names of aaiclick with the one that was probably meant."""
    if "relative import" in error.msg and "." not in module_name:
        return f"{error.msg}: go to the directory above, and write {Path.cwd().name}.{module_name}.FUNCTION"
    match = re.match(r"cannot import name '(\w+)' from '(aaiclick[\w.]*)'", error.msg)
    if match is None:
        return error.msg
    close = difflib.get_close_matches(match[1], getattr(sys.modules.get(match[2]), "__all__", ()), 1)
    if close:
        return f"{match[0]}; did you mean {close[0]!r}?"
    modules = (name for name in PUBLIC_MODULES if match[1] in importlib.import_module(name).__all__)
    return match[0] + "".join(f"; write: from {name} import {match[1]}" for name in islice(modules, 1))


def load_target(entrypoint: str) -> Any:
    """The object that an entry point names; raises EntrypointError with a remedy if there is none."""
    module_name, attribute = split_entrypoint(entrypoint)
    try:
        module = import_user_module(module_name)
    except ModuleNotFoundError:
        raise EntrypointError(
            f"{entrypoint!r} cannot be imported: there is no module {module_name!r} here.",
            remedy="Run the command in the directory of the module, or install it.",
        ) from None
    if module_name in sys.stdlib_module_names and (Path.cwd() / f"{module_name}.py").exists():
        raise EntrypointError(
            f"The file {module_name}.py has the name of a module of Python, which is imported instead.",
            remedy=f"Rename the file, for example to my_{module_name}.py.",
        )
    if not hasattr(module, attribute):
        raise EntrypointError(f"The module {module_name!r} has no {attribute!r}.", remedy=_suggest(module, attribute))
    return getattr(module, attribute)


def _suggest(module: ModuleType, attribute: str) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, JobFunction | TaskFunction)]
    close = difflib.get_close_matches(attribute, names, 1)
    if close:
        return f"Did you mean {module.__name__}.{close[0]}?"
    if not names:
        return f"{module.__name__} has no @job and no @task: decorate a function."
    return f"Its jobs and tasks: {', '.join(names[:MAX_NAMES])}."
