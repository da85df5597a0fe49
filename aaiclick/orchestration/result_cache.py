"""Cached results: `@task(cache=...)` reuses the result of a task with the same code version and inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aaiclick.cron import parse_interval
from aaiclick.errors import SubmitError
from aaiclick.orchestration.retry_policy import PermanentError

Function = Callable[..., Any]
CacheKey = str | Callable[..., str]
"""Text instead of the inputs, or a function of the arguments that returns it."""


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How long the results of a function are reused, and by which key."""

    max_age_seconds: float | None
    key: CacheKey | None


_options: dict[Function, CacheOptions] = {}


def register_cache(function: Function, cache: str, key: CacheKey | None) -> None:
    """Cache the results of a function: "input" without a time limit, or for an interval such as "1d"."""
    if not isinstance(key, str | Callable | None):  # pyright: ignore[reportUnnecessaryIsInstance]  (of untyped code)
        raise SubmitError(f"The cache key {key!r:.50} is not valid.", remedy="Give text, or a function for it.")
    if not isinstance(cache, str):  # pyright: ignore[reportUnnecessaryIsInstance]  (of untyped code)
        raise SubmitError(
            f"The option cache has the value {cache!r:.50}.", remedy='Give "input", or a time: cache="1d".'
        )
    max_age = None if cache == "input" else parse_interval(cache).total_seconds()
    _options[function] = CacheOptions(max_age, key)


def cached_branch_error(function: Function) -> PermanentError:
    """The error of a cached function that returned a Branch: the choice is not stored, so it could not be repeated."""
    return PermanentError(
        f"{function.__qualname__}() has a cached result and returned a Branch, which is not cached.",
        remedy="Remove cache= from the task that chooses, and cache the task that computes what it decides by.",
    )


def find_cache(function: Function) -> CacheOptions | None:
    """Options of a function with cached results."""
    return _options.get(function)


def make_cache_key(code_version: str, entrypoint: str, inputs: str) -> str:
    return hashlib.sha256(json.dumps([code_version, entrypoint, inputs]).encode()).hexdigest()
