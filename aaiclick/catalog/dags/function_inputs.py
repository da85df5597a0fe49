"""Parameters of the functions of `python` definitions: inputs by name, or by `{input: NAME}` in `arguments`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aaiclick.catalog.dags.validation import Data, Finding, as_list, as_mapping, get_name
from aaiclick.catalog.dags.yaml_tree import Path
from aaiclick.data.errors import suggest_name

INPUT_KEY = "input"
EVENT_PARAMETER = "event"


def find_input_references(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Parameters that receive an input by `{input: NAME}`."""
    references = {name: as_mapping(value) for name, value in arguments.items()}
    return {
        name: str(value[INPUT_KEY])
        for name, value in references.items()
        if set(value) == {INPUT_KEY} and isinstance(value[INPUT_KEY], str)
    }


def assign_inputs(inputs: Iterable[str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Inputs by parameter: those that `arguments` refers to, and the others by their own names."""
    references = find_input_references(arguments)
    return references | {name: name for name in inputs if name not in references.values()}


def check_input_references(path: Path, definition: Data) -> Iterator[Finding]:
    """Yield findings about `{input: NAME}` that is no input of the definition."""
    names = {get_name(entry, "dataset" if "dataset" in as_mapping(entry) else "output") for entry in
             as_list(definition.get("inputs"))}  # fmt: skip
    arguments = as_mapping(as_mapping(definition.get("config")).get("arguments"))
    for parameter, name in find_input_references(arguments).items():
        if name not in names:
            remedy = suggest_name(name, [name for name in names if name]) or "Add it to inputs."
            yield Finding(
                (*path, "config", "arguments", parameter), f"The definition has no input {name!r:.60}.", remedy
            )
