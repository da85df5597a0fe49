"""What a callback takes, by the annotations of its first parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from aaiclick.data.forms import Form, forms_of
from aaiclick.errors import EntrypointError


def parameters_of(function: Callable[..., Any], count: int, extra: Mapping[str, Any]) -> list[tuple[str, Form]]:
    """Names and forms of the parameters that take the chunks; raises EntrypointError if it cannot be called so."""
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
    forms = forms_of(function)
    for parameter in taken:
        if forms[parameter.name] in ("unknown", "value", "rows"):
            raise EntrypointError(
                f"{function.__qualname__}() takes {parameter.name!r} as {parameter.annotation!r},"
                " which chunks do not come as.",
                remedy="Use View, pyarrow.Table, pyarrow.RecordBatch, pandas.DataFrame or polars.DataFrame.",
            )
    return [(parameter.name, forms[parameter.name]) for parameter in taken]
