"""Signatures of callbacks: which parameters take chunks, and in which form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from aaiclick.data.io.argument_conversion import Form, list_argument_forms
from aaiclick.errors import EntrypointError


def chunk_parameters(
    function: Callable[..., object], count: int, extra: Mapping[str, object]
) -> list[tuple[str, Form]]:
    """Return names and forms of the parameters that take chunks; raise EntrypointError if the function has too few."""
    signature = inspect.signature(function)
    keyword_params = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    chunk_params = [p for p in keyword_params if p.name not in extra][:count]
    try:
        signature.bind(**{p.name: None for p in chunk_params}, **extra)
    except TypeError as error:
        raise EntrypointError(
            f"{function.__qualname__}() cannot be called with {count} chunk(s) and {sorted(extra)}: {error}.",
            remedy="Its first parameters take the chunks, the others take the keyword arguments.",
        ) from None
    if len(chunk_params) < count:
        raise EntrypointError(
            f"{function.__qualname__}() has {len(chunk_params)} parameters for {count} chunks.",
            remedy="Add a parameter for each.",
        )
    forms = list_argument_forms(function)
    for parameter in chunk_params:
        if forms[parameter.name] in ("unknown", "value", "rows"):
            raise EntrypointError(
                f"{function.__qualname__}() takes {parameter.name!r} as {parameter.annotation!r},"
                " which chunks cannot be passed as.",
                remedy="Use View, pyarrow.Table, pyarrow.RecordBatch, pandas.DataFrame or polars.DataFrame.",
            )
    return [(parameter.name, forms[parameter.name]) for parameter in chunk_params]
