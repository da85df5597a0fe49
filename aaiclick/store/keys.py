"""API keys: `aai_PREFIX_SECRET`. The prefix finds the row, the hash of the secret decides, the secret is kept nowhere.

A secret is 256 random bits, so one SHA-256 is enough: there is nothing to guess that a slow hash would protect.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.store.statements import statement
from aaiclick.store.users import get_user
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

SCOPES = ("reader", "writer", "admin", "worker")
MARK = "aai"
PREFIX_LENGTH = 12
SECRET_LENGTH = 43
_ALPHABET = string.ascii_letters + string.digits
_NOTHING = hashlib.sha256(b"no such key").digest()


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who a key stands for."""

    key_id: UUID
    org_id: UUID
    user_id: UUID | None
    prefix: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is made: the only time that its text is known."""

    text: str = field(repr=False)
    row: asyncpg.Record


def split_key(text: str) -> tuple[str, str] | None:
    """Prefix and secret of a key, or None if this is no key."""
    parts = text.split("_")
    if len(parts) != 3 or parts[0] != MARK or len(parts[1]) != PREFIX_LENGTH or len(parts[2]) != SECRET_LENGTH:
        return None
    if not (parts[1] + parts[2]).isascii() or not (parts[1] + parts[2]).isalnum():
        return None
    return parts[1], parts[2]


def prefix_of(text: str) -> str:
    """What a key is known by, of as much as was given of it; what does not begin like a key stays as it is."""
    return text.split("_")[1] if text.startswith(f"{MARK}_") else text


async def create_key(
    connection: Connection,
    *,
    org_id: UUID,
    name: str,
    scopes: Sequence[str],
    user_id: UUID | None = None,
    lifetime_seconds: float | None = None,
) -> NewKey:
    """Make a key; its text is in the answer and nowhere else."""
    if not scopes or not set(scopes) <= set(SCOPES):
        raise SubmitError(f"A key cannot have the scopes {list(scopes)}.", remedy=f"Choose from {', '.join(SCOPES)}.")
    prefix, secret = _random(PREFIX_LENGTH), _random(SECRET_LENGTH)
    if user_id is not None:
        await get_user(connection, org_id, user_id)  # a foreign key would take another org's
    row = await connection.fetchrow(
        statement("insert_key"), org_id, user_id, name, prefix, _hash(secret), sorted(set(scopes)), lifetime_seconds
    )
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return NewKey(f"{MARK}_{prefix}_{secret}", row)


async def create_first_key(connection: Connection) -> NewKey | None:
    """An admin key of the default org, if there is no key at all; of several that ask at once, one gets it."""
    if await connection.fetchval(statement("has_keys")):
        return None
    async with connection.transaction():
        await connection.execute(statement("lock_first_key"))
        if await connection.fetchval(statement("has_keys")):
            return None
        return await create_key(connection, org_id=DEFAULT_ORG_ID, name="first admin key", scopes=["admin", "worker"])


async def verify_key(connection: Connection, text: str) -> KeyHolder | None:
    """Whose key this is; None if it is nobody's, expired, revoked, or its user is disabled.

    A wrong secret takes the same steps as a right one, and so does a prefix that nobody has.
    """
    parts = split_key(text)
    if parts is None:
        return None
    prefix, secret = parts
    row = await connection.fetchrow(statement("find_key"), prefix)
    expected = _NOTHING if row is None else bytes(row["key_hash"])
    if not hmac.compare_digest(_hash(secret), expected) or row is None:
        return None
    if row["stale"]:
        await connection.execute(statement("touch_key"), row["id"])
    return KeyHolder(row["id"], row["org_id"], row["user_id"], row["prefix"], tuple(row["scopes"]))


async def list_keys(
    connection: Connection, org_id: UUID, *, after: UUID | None = None, limit: int = 100
) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_keys"), org_id, after, limit)


async def get_key(connection: Connection, org_id: UUID, key_id: UUID) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_key"), org_id, key_id)


async def key_named(connection: Connection, org_id: UUID, named: str) -> asyncpg.Record:
    """By the prefix or the id."""
    row = await connection.fetchrow(statement("key_named"), org_id, named)
    if row is None:
        raise _no_key(named)
    return row


async def revoke_key(connection: Connection, org_id: UUID, key_id: UUID) -> asyncpg.Record:
    """The key opens nothing from now on."""
    row = await connection.fetchrow(statement("revoke_key"), org_id, key_id)
    if row is None:
        raise _no_key(str(key_id))
    return row


def _no_key(named: str) -> NotFoundError:
    return NotFoundError(f"There is no key {named!r:.60}.", remedy="'aaiclick key ls' lists them.")


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
