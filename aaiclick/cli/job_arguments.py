"""Parameters of a job as command-line options of `aaiclick run`: their help, and the values of an invocation."""

from __future__ import annotations

import difflib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import click
from pydantic import ValidationError

from aaiclick.cli.entrypoint_import import load_target
from aaiclick.errors import AaiclickError
from aaiclick.orchestration.parameter_schema_text import describe_parameters, describe_type
from aaiclick.orchestration.parameters import JobParameters, Parameter

MAX_DEFAULT_CHARACTERS = 60


def write_parameters(formatter: click.HelpFormatter, entrypoint: str, own_names: set[str]) -> None:
    """Add the parameters of an entry point to the help of `run`."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        target = load_target(entrypoint)
    except AaiclickError as error:
        with formatter.section(f"Parameters of {entrypoint}"):
            formatter.write_text(f"Not known here: {error}")
        return
    with formatter.section(f"Parameters of {entrypoint}"):
        if documentation := inspect.getdoc(target):
            formatter.write_text(documentation.partition("\n\n")[0])
        rows = [describe_option(field, own_names) for field in parameters_of(target).parameters.values()]
        formatter.write_dl(rows) if rows else formatter.write_text("none")


def parameters_of(target: Any) -> JobParameters:
    """Parameters of a @job, a @task or a plain function."""
    parameters = getattr(target, "parameters", None)
    return parameters if isinstance(parameters, JobParameters) else JobParameters(getattr(target, "function", target))


def describe_option(parameter: Parameter, own_names: set[str]) -> tuple[str, str]:
    """Name and description of a parameter for help; one with the name of an option of `run` is set with --arg."""
    option, schema = option_name(parameter.name), parameter.schema
    if option in own_names:
        name = f"--arg {parameter.name}=VALUE"
    elif _is_boolean(schema):
        name = f"{option} / --no-{option[2:]}"
    else:
        name = f"{option} {str(schema.get('format') or schema.get('type') or 'value').upper()}"
    models = [f"{model}: {describe_parameters(fields)}." for model, fields in schema.get("$defs", {}).items()]
    return name, " ".join(
        [
            *([str(schema["description"])] if "description" in schema else []),
            describe_type(schema),
            "[required]" if parameter.is_required else f"[default: {_describe_default(parameter)}]",
            *(model for model in models if not model.endswith(": none.")),
        ]
    )


def _describe_default(parameter: Parameter) -> str:
    value = parameter.schema.get("default", repr(parameter.default))
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_DEFAULT_CHARACTERS else text[: MAX_DEFAULT_CHARACTERS - 1] + "…"


def option_name(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def split_options(tokens: Sequence[str], boolean_names: set[str]) -> list[tuple[str, str | None]]:
    """Pairs of option and value of the tokens after the entry point; None for an option without value.

    Raises click's UsageError for a word that is no option.
    """
    pairs: list[tuple[str, str | None]] = []
    remaining = iter(tokens)
    for word in remaining:
        if not word.startswith("--") or len(word) < 3:
            raise click.UsageError(f"Unexpected argument {word!r:.80}: write parameters as --NAME VALUE.")
        option, equals, value = word[2:].partition("=")
        name = option.replace("-", "_")
        if equals:
            pairs.append((name, value))
        elif name in boolean_names or (name.startswith("no_") and name[3:] in boolean_names):
            pairs.append((name, None))
        else:
            text = next(remaining, None)
            if text is None:
                raise click.UsageError(f"--{option} needs a value: --{option} VALUE.")
            pairs.append((name, text))
    return pairs


def parse_job_arguments(tokens: Sequence[str], parameters: Mapping[str, Parameter] | None) -> dict[str, object]:
    """Arguments of the tokens after the entry point; without parameters every value is JSON or plain text.

    Values are as JSON has them, so that they can be sent to a server; a repeated option is a list.
    """
    by_name = parameters or {}
    boolean_names = {name for name, parameter in by_name.items() if _is_boolean(parameter.schema)}
    texts: dict[str, list[str]] = {}
    arguments: dict[str, object] = {}
    for name, text in split_options(tokens, boolean_names):
        if text is None:
            arguments[name.removeprefix("no_") if name not in boolean_names else name] = name in boolean_names
        elif parameters is not None and name not in parameters:
            raise _unknown_option(name, parameters)
        else:
            texts.setdefault(name, []).append(text)
    return arguments | {name: parse_texts(by_name.get(name), values) for name, values in texts.items()}


def _is_boolean(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "boolean"


def _unknown_option(name: str, parameters: Mapping[str, Parameter]) -> click.UsageError:
    close = difflib.get_close_matches(name, parameters, 1)
    options = ", ".join(option_name(parameter) for parameter in parameters) or "none"
    remedy = f"Did you mean {option_name(close[0])}?" if close else f"Options of the job: {options}."
    return click.UsageError(f"No such option: {option_name(name)}. {remedy}")


def parse_texts(parameter: Parameter | None, texts: Sequence[str]) -> object:
    """The first reading of an option's values that the parameter accepts; the first of all if it accepts none.

    A value is read as JSON, unless that is a string or loses digits; then as text; then as the item of a list.
    """
    readings = list(_iter_readings(texts))
    if parameter is not None:
        for reading in readings:
            try:
                parameter.validate(reading)
            except (ValidationError, ValueError, TypeError, RecursionError):
                continue
            return reading
    return readings[0]


def _iter_readings(texts: Sequence[str]) -> Iterator[object]:
    parsed = [_parse_json(text) for text in texts]
    if len(texts) == 1:
        if isinstance(parsed[0], float) and Decimal(repr(parsed[0])) != Decimal(texts[0].strip()):
            yield texts[0]
        yield parsed[0]
        yield texts[0]
    yield parsed
    yield list(texts)


def _parse_json(text: str) -> object:
    """The JSON value of a text; the text itself if it is no JSON, or a JSON string."""
    try:
        value = cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value
