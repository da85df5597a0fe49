"""Replacement of `{secret: NAME}` in operators' settings, in the task, by secrets granted to the organisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from aaiclick.orchestration.secrets import read_secrets
from aaiclick.orchestration.task_context import TaskScope
from aaiclick.store.tenancy.secrets import Secret

REFERENCE_KEY = "secret"


async def fill_secrets(
    config: dict[str, object], declared: Mapping[str, str], scope: TaskScope
) -> tuple[dict[str, Any], tuple[Secret, ...]]:
    """Return the settings with every `{secret: NAME}` replaced, and the secrets used."""
    names = sorted({name for name in secret_names(config) if name in declared})
    if not names:
        return config, ()
    secrets_by_name = {secret.name: secret for secret in await read_secrets(scope, names)}
    return _replace_secrets(config, secrets_by_name), tuple(secrets_by_name.values())


def secret_names(value: object) -> Iterator[str]:
    """Yield the secret names used in settings."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if list(fields) == [REFERENCE_KEY] and isinstance(fields[REFERENCE_KEY], str):
            yield fields[REFERENCE_KEY]
        for part in fields.values():
            yield from secret_names(part)
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from secret_names(part)


def _replace_secrets(value: object, secrets_by_name: Mapping[str, Secret]) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if list(fields) == [REFERENCE_KEY] and fields[REFERENCE_KEY] in secrets_by_name:
            return secrets_by_name[fields[REFERENCE_KEY]].value
        return {key: _replace_secrets(part, secrets_by_name) for key, part in fields.items()}
    if isinstance(value, list):
        return [_replace_secrets(part, secrets_by_name) for part in cast("list[Any]", value)]
    return value
