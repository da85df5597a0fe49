"""Secrets of organisations: written by admins, read by attempts with a valid lease.

A task of a definition may read the secrets that the definition declares, other tasks all of their organisation. A
secret bound to a host is available to `http_fetch` only, for a URL of that host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from aaiclick.errors import ConflictError, LeaseLost, NotFoundError, RequestError, SecretError
from aaiclick.server_addresses import is_secret_name, origin_of, parse_secret_host, parse_secret_keys
from aaiclick.settings import Settings
from aaiclick.store.statements import statement
from aaiclick.store.tenancy.environment_secrets import MAX_BYTES, load_mapped_secrets, read_mapped_secret
from aaiclick.store.tenancy.orgs import OrgRow
from aaiclick.store.tenancy.secret_encryption import (
    KeyRing,
    create_key_file,
    load_keys,
    missing_key_error,
    new_key,
    write_key_file,
)

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine.leases_and_outcomes import Lease
    from aaiclick.store.postgres_connections import Connection

MIN_CHARACTERS = 4
"""A shorter value could not be redacted in logs without hiding other text."""
SENDER = "http_fetch"
"""The operator that sends bound secrets, and checks the host of every request."""


@dataclass(frozen=True)
class Secret:
    """A decrypted secret, and the only origin that it may be sent to."""

    name: str
    value: str = field(repr=False)
    host: str | None = None


@dataclass(frozen=True)
class ListedSecret:
    """Metadata of a secret."""

    name: str
    host: str | None
    source: Literal["stored", "map"]
    """`stored` in the database, or an entry of the operator's `map`."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


# --- administration -----------------------------------------------------------------------------------------------


async def load_keys_for_writing(connection: Connection) -> KeyRing:
    """The keys to encrypt with; creates the key file of an installation without secrets. Needs the owner's connection.

    A second machine must not create its own key: the first one could not decrypt with it.
    """
    keys = load_keys()
    used = [row["key_id"] for row in await connection.fetch(statement("list_secret_key_ids"))]
    if used and not keys.keys.keys() & set(used):
        raise missing_key_error(used[0])
    return keys if keys.keys else create_key_file()


async def find_missing_keys(connection: Connection, settings: Settings | None = None) -> list[str]:
    """Ids of keys of stored secrets that this process does not have."""
    key_ids = load_keys(settings).keys
    return [
        row["key_id"]
        for row in await connection.fetch(statement("list_secret_key_ids"))
        if row["key_id"] not in key_ids
    ]


async def set_secret(
    connection: Connection, org: OrgRow, name: str, value: str, host: str | None, keys: KeyRing
) -> ListedSecret:
    """Create or replace a secret of an organisation."""
    check_secret_name(name)
    if len(value) < MIN_CHARACTERS or len(value.encode()) > MAX_BYTES or "\x00" in value:
        raise RequestError(
            f"The value of {name!r} cannot be a secret.",
            remedy=f"Send {MIN_CHARACTERS} characters to {MAX_BYTES:,} bytes of text.",
        )
    if name in load_mapped_secrets(org.slug):
        raise ConflictError(
            f"The secret {name!r} comes from the operator's AAICLICK_SECRETS_MAP.", remedy="Choose another name."
        )
    origin = None if host is None else _parse_host(host)
    ciphertext, key_id = keys.encrypt(org.id, name, origin, value)
    row = await connection.fetchrow(statement("set_secret"), org.id, name, origin, ciphertext, key_id)
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return ListedSecret(row["name"], row["host"], "stored", row["created_at"], row["updated_at"])


async def list_secrets(
    connection: Connection, org: OrgRow, *, after: str | None = None, limit: int = 100
) -> list[ListedSecret]:
    """List secrets by name, including those of the operator's map in this process."""
    mapped = load_mapped_secrets(org.slug)
    rows = await connection.fetch(statement("list_secrets"), org.id, after, limit)
    secrets = {
        row["name"]: ListedSecret(row["name"], row["host"], "stored", row["created_at"], row["updated_at"])
        for row in rows
    }
    secrets |= {
        name: ListedSecret(name, entry.host, "map") for name, entry in mapped.items() if after is None or name > after
    }
    return [secrets[name] for name in sorted(secrets)][:limit]


async def delete_secret(connection: Connection, org_id: UUID, name: str) -> None:
    if await connection.fetchval(statement("delete_secret"), org_id, name) is None:
        raise NotFoundError(f"There is no secret {name!r:.80}.", remedy="'aaiclick secrets ls' lists them.")


async def rotate_keys(connection: Connection, *, from_environment: bool) -> int:
    """Encrypt all secrets with the newest key, which is created without AAICLICK_SECRETS_KEY; returns how many.

    The previous key stays in the file until the next rotation: a concurrent write may use it.
    """
    keys = load_keys()
    if not from_environment:
        write_key_file([*parse_secret_keys(new_key()), *keys.keys.values()])
        keys = load_keys()
    if not keys.keys:
        raise SecretError("There is no key to encrypt with.", remedy="Set AAICLICK_SECRETS_KEY, or a secret.")
    async with connection.transaction():
        rows = await connection.fetch(statement("lock_secrets"))
        for row in rows:
            value = keys.decrypt(row["org_id"], row["name"], row["host"], row["ciphertext"], row["key_id"])
            sealed = keys.encrypt(row["org_id"], row["name"], row["host"], value)
            await connection.execute(statement("reencrypt_secret"), row["org_id"], row["name"], *sealed)
    if not from_environment:
        write_key_file(list(keys.keys.values())[:2])
    return len(rows)


def check_secret_name(name: str) -> None:
    if not is_secret_name(name):
        raise RequestError(
            f"{name!r:.80} is not a valid name of a secret.",
            remedy="Use lower-case letters, digits, _ and -, at most 63, beginning with a letter.",
        )


def _parse_host(host: str) -> str:
    try:
        return parse_secret_host(host)
    except ValueError as error:
        raise RequestError(f"{host!r:.80} is not a host.", remedy=f"{str(error).capitalize()}.") from None


# --- use ----------------------------------------------------------------------------------------------------------


async def load_task_secrets(connection: Connection, lease: Lease, names: Sequence[str]) -> list[Secret]:
    """Secrets by the task's names for them; raises LeaseLost, or SecretError for the first that is not granted."""
    task = await connection.fetchrow(statement("load_task_secrets"), lease.task_id, lease.attempt, lease.token)
    if task is None:
        raise LeaseLost(
            f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease, and is given no secret.",
            remedy="Stop: another attempt runs or has finished.",
        )
    declared = _parse_declared(task["secrets"])
    secrets: list[Secret] = []
    for name in names:
        granted = declared.get(name) if task["is_of_definition"] else name
        if granted is None:
            raise SecretError(
                f"The definition of this task declares no secret {name!r:.80}.",
                remedy=f"Add secrets: [{name:.63}] to it.",
            )
        secret = await find_secret(connection, task["org_id"], task["slug"], granted)
        _check_host(secret, task)
        secrets.append(Secret(name, secret.value, secret.host))
    return secrets


async def find_secret(connection: Connection, org_id: UUID, slug: str, name: str) -> Secret:
    """A secret of an organisation; raises SecretError."""
    entry = load_mapped_secrets(slug).get(name)
    if entry is not None:
        return Secret(name, read_mapped_secret(entry), entry.host)
    row = await connection.fetchrow(statement("get_secret"), org_id, name)
    if row is None:
        raise SecretError(
            f"The organisation has no secret {name!r:.80}.", remedy=f"An admin sets it: aaiclick secrets set {name:.63}"
        )
    value = load_keys().decrypt(org_id, row["name"], row["host"], row["ciphertext"], row["key_id"])
    return Secret(row["name"], value, row["host"])


def _parse_declared(secrets: str | None) -> dict[str, str]:
    return {} if secrets is None else json.loads(secrets)


def _check_host(secret: Secret, task: asyncpg.Record) -> None:
    if secret.host is None:
        return
    if task["operator"] != SENDER or origin_of(task["url"] or "") != secret.host:
        raise wrong_host_error(secret)


def wrong_host_error(secret: Secret) -> SecretError:
    return SecretError(
        f"The secret {secret.name!r} is bound to {secret.host}, and is given to {SENDER} with a URL of that host only.",
        remedy="Use that host, or have an admin set the secret without --host.",
    )
