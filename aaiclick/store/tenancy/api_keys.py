"""API keys: `aai_PREFIX_SECRET`. The prefix identifies the row; only the hash of the secret is stored.

A secret has 256 random bits, so a single SHA-256 is enough: a slow hash protects guessable passwords only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement
from aaiclick.store.tenancy.users import get_user

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

SCOPES = ("reader", "writer", "admin", "worker")
KEY_SCHEME = "aai"
PREFIX_LENGTH = 12
SECRET_LENGTH = 43
_ALPHABET = string.ascii_letters + string.digits
_DUMMY_HASH = hashlib.sha256(b"no such key").digest()


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Organisation, user and scopes of a verified key."""

    key_id: UUID
    org_id: UUID
    user_id: UUID | None
    prefix: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key without its hash."""

    id: UUID
    org_id: UUID
    user_id: UUID | None
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key, with its text, which is not stored."""

    text: str = field(repr=False)
    row: KeyRow


def split_key(text: str) -> tuple[str, str] | None:
    """Prefix and secret of a key; None if the text is not a key."""
    parts = text.split("_")
    if len(parts) != 3 or parts[0] != KEY_SCHEME or len(parts[1]) != PREFIX_LENGTH or len(parts[2]) != SECRET_LENGTH:
        return None
    if not (parts[1] + parts[2]).isascii() or not (parts[1] + parts[2]).isalnum():
        return None
    return parts[1], parts[2]


def parse_key_prefix(text: str) -> str:
    """The prefix of a key or of its beginning; other text is returned unchanged."""
    return text.split("_")[1] if text.startswith(f"{KEY_SCHEME}_") else text


async def create_key(
    connection: Connection,
    *,
    org_id: UUID,
    name: str,
    scopes: Sequence[str],
    user_id: UUID | None = None,
    lifetime_seconds: float | None = None,
) -> NewKey:
    """Create a key; its text is in the result and nowhere else."""
    if not scopes or not set(scopes) <= set(SCOPES):
        raise SubmitError(f"A key cannot have the scopes {list(scopes)}.", remedy=f"Choose from {', '.join(SCOPES)}.")
    prefix, secret = _random_text(PREFIX_LENGTH), _random_text(SECRET_LENGTH)
    if user_id is not None:
        user_id = (await get_user(connection, org_id, str(user_id))).id  # the foreign key does not check the org
    row = await connection.fetchrow(
        statement("insert_key"),
        org_id,
        user_id,
        name,
        prefix,
        _hash_secret(secret),
        sorted(set(scopes)),
        lifetime_seconds,
    )
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return NewKey(f"{KEY_SCHEME}_{prefix}_{secret}", KeyRow(**row))


async def create_first_key(connection: Connection) -> NewKey | None:
    """Create an admin key of the default org if there is no key at all; of concurrent callers one gets it."""
    if await connection.fetchval(statement("has_keys")):
        return None
    async with connection.transaction():
        await connection.execute(statement("lock_first_key"))
        if await connection.fetchval(statement("has_keys")):
            return None
        return await create_key(connection, org_id=DEFAULT_ORG_ID, name="first admin key", scopes=["admin", "worker"])


async def verify_key(connection: Connection, text: str) -> KeyHolder | None:
    """The holder of a key; None if the key is unknown, expired or revoked, or its user is disabled.

    Unknown prefixes and wrong secrets take the same steps as valid keys (constant time).
    """
    parts = split_key(text)
    if parts is None:
        return None
    prefix, secret = parts
    row = await connection.fetchrow(statement("find_active_key"), prefix)
    expected = _DUMMY_HASH if row is None else bytes(row["key_hash"])
    if not hmac.compare_digest(_hash_secret(secret), expected) or row is None:
        return None
    if row["stale"]:
        await connection.execute(statement("touch_key"), row["id"])
    return KeyHolder(row["id"], row["org_id"], row["user_id"], row["prefix"], tuple(row["scopes"]))


async def list_keys(
    connection: Connection, org_id: UUID, *, after: UUID | None = None, limit: int = 100
) -> list[KeyRow]:
    return [KeyRow(**row) for row in await connection.fetch(statement("list_keys"), org_id, after, limit)]


async def get_key(connection: Connection, org_id: UUID, prefix_or_id: str) -> KeyRow:
    """Get a key by its prefix or id; raises NotFoundError."""
    return _to_key(await connection.fetchrow(statement("get_key"), org_id, prefix_or_id), prefix_or_id)


async def revoke_key(connection: Connection, org_id: UUID, prefix_or_id: str) -> KeyRow:
    """Revoke a key by its prefix or id; raises NotFoundError."""
    return _to_key(await connection.fetchrow(statement("revoke_key"), org_id, prefix_or_id), prefix_or_id)


def _to_key(row: asyncpg.Record | None, prefix_or_id: str) -> KeyRow:
    if row is None:
        raise NotFoundError(f"There is no key {prefix_or_id!r:.60}.", remedy="'aaiclick key ls' lists them.")
    return KeyRow(**row)


def _random_text(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
