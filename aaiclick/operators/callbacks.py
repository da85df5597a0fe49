"""What a callback takes, by the annotations of its first parameters."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from aaiclick.data import Object
from aaiclick.errors import EntrypointError

Kind = Literal["view", "arrow", "batch", "pandas", "polars"]

_KINDS: dict[tuple[str, str], Kind] = {
    ("aaiclick", "View"): "view",
    ("aaiclick", "Object"): "view",
    ("pyarrow", "Table"): "arrow",
    ("pyarrow", "RecordBatch"): "batch",
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
}
_MODULES = {"pa": "pyarrow", "pd": "pandas", "pl": "polars"}


def parameters_of(function: Callable[..., Any], count: int, extra: Mapping[str, Any]) -> list[tuple[str, Kind]]:
    """Names and kinds of the parameters that take the chunks; raises EntrypointError if it cannot be called so."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    taken = [p for p in named if p.name not in extra][:count]
    try:
        signature.bind(**{p.name: None for p in taken}, **extra)
    except TypeError as error:
        raise EntrypointError(
            f"{function.__qualname__}() cannot be called with {count} chunk(s) and {sorted(extra)}: {error}.",
            remedy="Its first parameters take the chunks, the others take the keyword arguments.",
        ) from None
    if len(taken) < count:
        raise EntrypointError(
            f"{function.__qualname__}() has {len(taken)} parameters for {count} chunks.", remedy="Give it one for each."
        )
    return [(p.name, _kind(function, p)) for p in taken]


def _kind(function: Callable[..., Any], parameter: inspect.Parameter) -> Kind:
    annotation: Any = parameter.annotation
    if annotation is parameter.empty or annotation is Any:
        return "view"
    if isinstance(annotation, str):
        home, _, name = annotation.rpartition(".")
        if home:
            module = _MODULES.get(home, home).partition(".")[0]
        else:
            found = getattr(sys.modules.get(function.__module__), name, None)
            module = getattr(found, "__module__", "aaiclick" if name in ("View", "Object") else "").partition(".")[0]
    else:
        module, name = str(getattr(annotation, "__module__", "")), getattr(annotation, "__name__", str(annotation))
        module = module.partition(".")[0]
    kind = _KINDS.get((module, name))
    if kind is None:
        raise EntrypointError(
            f"{function.__qualname__}() takes {parameter.name!r} as {annotation!r}, which chunks do not come as.",
            remedy="Use View, pyarrow.Table, pyarrow.RecordBatch, pandas.DataFrame or polars.DataFrame.",
        )
    return kind


async def read_as(view: Object, kind: Kind) -> Any:
    """A chunk in the form that a callback takes, and its number of rows if that is known by then."""
    match kind:
        case "view":
            return view
        case "arrow":
            return await view.to_arrow()
        case "batch":
            return one_batch(await view.to_arrow())
        case "pandas":
            return await view.to_pandas()
        case "polars":
            return await view.to_polars()


def one_batch(table: pa.Table) -> Any:
    batches: Sequence[Any] = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
