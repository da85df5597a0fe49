"""`{secret: NAME}` in operators' settings, replaced where the task runs by what its organisation was granted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from aaiclick.orchestration.scope import TaskScope
from aaiclick.orchestration.secrets import read_secrets
from aaiclick.store.org_secrets import Secret

MARK = "secret"


async def fill_secrets(
    config: dict[str, Any], declared: Mapping[str, str], scope: TaskScope
) -> tuple[dict[str, Any], tuple[Secret, ...]]:
    """The settings with every `{secret: NAME}` replaced, and the secrets that were."""
    names = sorted({name for name in secret_names(config) if name in declared})
    if not names:
        return config, ()
    found = {secret.name: secret for secret in await read_secrets(scope, names)}
    return _filled(config, found), tuple(found.values())


def secret_names(value: Any) -> Iterator[str]:
    """The names that settings use."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if list(fields) == [MARK] and isinstance(fields[MARK], str):
            yield fields[MARK]
        for part in fields.values():
            yield from secret_names(part)
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from secret_names(part)


def _filled(value: Any, found: Mapping[str, Secret]) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if list(fields) == [MARK] and fields[MARK] in found:
            return found[fields[MARK]].value
        return {key: _filled(part, found) for key, part in fields.items()}
    if isinstance(value, list):
        return [_filled(part, found) for part in cast("list[Any]", value)]
    return value
