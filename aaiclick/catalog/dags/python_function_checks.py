"""Checks of the functions of `python` definitions, where their code can be imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from aaiclick.catalog.dags.function_inputs import EVENT_PARAMETER, assign_inputs
from aaiclick.catalog.dags.model import Dag, DefinitionSpec
from aaiclick.catalog.dags.validation import Finding, as_mapping
from aaiclick.catalog.dags.yaml_tree import Path
from aaiclick.data.errors import ConversionError, suggest_name
from aaiclick.data.io.argument_conversion import annotations_of, argument_form
from aaiclick.errors import AaiclickError
from aaiclick.orchestration.decorator_checks import read_signature
from aaiclick.orchestration.typed_arguments import restore_arguments

SECRET_KEY = "secret"  # noqa: S105  (the key of a reference)

Resolve = Callable[[str], Callable[..., object] | None]
"""Finds the function of `package.module:function`; None if its module is not installed here."""


def check_functions(dag: Dag, resolve: Resolve) -> Iterator[Finding]:
    """Yield findings about the functions of `python` definitions: whether they exist and accept their arguments."""
    for index, definition in enumerate(dag.jobs):
        name = definition.config.get("function")
        if definition.operator != "python" or not isinstance(name, str):
            continue
        path: Path = ("jobs", index, "config")
        try:
            function = resolve(name)
        except AaiclickError as error:
            yield Finding((*path, "function"), error.what, error.remedy)
            continue
        if function is not None:
            yield from _check_call(path, definition, function)


def _check_call(path: Path, definition: DefinitionSpec, function: Callable[..., object]) -> Iterator[Finding]:
    arguments = cast("dict[str, Any]", definition.config.get("arguments", {}))
    inputs = assign_inputs((str(entry.dataset or entry.output) for entry in definition.inputs), arguments)
    constants = {name: value for name, value in arguments.items() if name not in inputs}
    signature = read_signature(function)
    parameters = list(signature.parameters.values())
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    accepted = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    shown = f"{definition.config['function']}{signature}"
    if not takes_any:
        for name in sorted((inputs.keys() | constants.keys()) - accepted):
            yield _unknown_parameter(path, name, inputs, accepted, shown)
    filled = inputs.keys() | constants.keys() | {EVENT_PARAMETER}
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in filled and _is_single(parameter):
            yield Finding(
                (*path, "function"),
                f"{shown} needs {parameter.name!r}, and no input or argument has this name.",
                f"Add arguments: {{{parameter.name}: VALUE}}, or {{{parameter.name}: {{input: NAME}}}}.",
            )
    yield from _check_forms(path, function, inputs)
    yield from _check_constants(path, function, {name: constants[name] for name in constants if name in accepted})


def _is_single(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)


def _unknown_parameter(
    path: Path, name: str, inputs: Mapping[str, str], accepted: Sequence[str] | set[str], shown: str
) -> Finding:
    if name not in inputs:
        remedy = suggest_name(name, sorted(accepted)) or "Remove the argument."
        return Finding((*path, "arguments", name), f"{shown} has no parameter {name!r:.60}.", remedy, at_key=True)
    if inputs[name] != name:
        remedy = suggest_name(name, sorted(accepted)) or "Use the name of a parameter."
        return Finding((*path, "arguments", name), f"{shown} has no parameter {name!r:.60}.", remedy, at_key=True)
    return Finding(
        (*path, "function"),
        f"{shown} has no parameter for the input {name!r:.60}.",
        f"Name a parameter {name}, or add arguments: {{PARAMETER: {{input: {name}}}}}.",
    )


def _check_forms(path: Path, function: Callable[..., object], inputs: Mapping[str, str]) -> Iterator[Finding]:
    """Check that parameters of inputs have annotations of data."""
    annotations = annotations_of(function)
    for parameter, name in inputs.items():
        if parameter in annotations and argument_form(annotations[parameter]) == "unknown":
            yield Finding(
                (*path, "function"),
                f"The parameter {parameter!r} receives the input {name!r:.60}, but is annotated with "
                f"{annotations[parameter]!r:.60}.",
                "Annotate it as Object, pandas.DataFrame, polars.DataFrame, pyarrow.Table, list or dict.",
            )


def _check_constants(path: Path, function: Callable[..., object], constants: Mapping[str, Any]) -> Iterator[Finding]:
    """Check constant arguments by the annotations of their parameters; values of secrets are not known here."""
    for name, value in constants.items():
        if SECRET_KEY in as_mapping(value):
            continue
        try:
            restore_arguments(function, {name: value})
        except ConversionError as error:
            yield Finding((*path, "arguments", name), error.what, error.remedy)
