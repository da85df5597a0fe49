"""Who sits at the browser: a cookie with a random token, whose hash is a row in PostgreSQL.

The API key itself never is in a cookie. A session ends by signing out, after LIFETIME_SECONDS, and at once when its key
is revoked or its user disabled. The token of forms is derived from the cookie, so another site cannot know it; before
signing in, and where there is no authentication, the cookie is a random value without a row.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from aaiclick import faults
from aaiclick.server.identity import refused
from aaiclick.server.origin import has_foreign_host
from aaiclick.server.permissions import Permission, Principal
from aaiclick.server.problems import CredentialError
from aaiclick.server.service import ANYBODY, Service
from aaiclick.store import ui_sessions
from aaiclick.store.keys import MARK, verify_key
from aaiclick.store.users import find_user

if TYPE_CHECKING:
    from aaiclick.server.ui.house import House
    from aaiclick.store.engine import Connection

COOKIE = "aaiclick_session"
LIFETIME_SECONDS = 14 * 86_400
LONGEST = 100


async def find_principal(service: Service, request: Request) -> Principal | None:
    """Who sits there; None if nobody signed in."""
    if not service.auth:
        await service.authenticate(request)  # refuses a foreign host
        return ANYBODY
    token = token_of(request)
    if token is None:
        return None
    async with service.owner() as connection:
        row = await ui_sessions.find_session(connection, hash_of(token))
    if row is None:
        return None
    if row["prefix"] is not None:
        return Principal(row["org_id"], f"key {MARK}_{row['prefix']}", frozenset(row["scopes"]))
    return Principal(row["org_id"], f"user {row['user_id']}", frozenset({row["role"]}))


async def sign_in(house: House, credential: str, request_id: str | None) -> str:
    """A new session for a key or a token of the identity provider; raises CredentialError."""
    by = "key" if credential.startswith(f"{MARK}_") else "token"
    async with house.service.owner() as connection:
        try:
            key_id, principal = await _holder(house.service, connection, credential)
        except CredentialError:
            await house.guestbook.enter(connection, "sign_in.refused", by, request_id)
            raise
        guest = Guest(principal.actor, principal.org_id, key_id, None if key_id else _user_of(principal))
        return await _open(house, connection, guest, by, request_id)


async def sign_in_subject(house: House, subject: str, request_id: str | None) -> str | None:
    """A new session for whom the identity provider signed in; None if that is nobody of ours."""
    async with house.service.owner() as connection:
        user = await find_user(connection, subject)
        if user is None:
            await house.guestbook.enter(connection, "sign_in.refused", "provider", request_id)
            return None
        guest = Guest(f"user {user['id']}", user["org_id"], None, user["id"])
        return await _open(house, connection, guest, "provider", request_id)


@dataclass(frozen=True, slots=True)
class Guest:
    """Who signs in: by a key, or as a user."""

    actor: str
    org_id: UUID
    key_id: UUID | None
    user_id: UUID | None


async def _open(house: House, connection: Connection, guest: Guest, by: str, request_id: str | None) -> str:
    """A session and its record."""
    token = new_token()
    async with faults.transaction(connection, "sign_in"):
        await house.guestbook.enter(connection, "sign_in", by, request_id, actor=guest.actor, org_id=guest.org_id)
        await ui_sessions.create_session(
            connection, hash_of(token), key_id=guest.key_id, user_id=guest.user_id, lifetime_seconds=LIFETIME_SECONDS
        )
    return token


async def _holder(service: Service, connection: Connection, credential: str) -> tuple[UUID | None, Principal]:
    """The key, if it is one, and who its holder is; raises CredentialError."""
    if not credential.startswith(f"{MARK}_"):
        return None, await service.identify(connection, credential)
    holder = await verify_key(connection, credential)
    if holder is not None:
        principal = Principal(holder.org_id, f"key {MARK}_{holder.prefix}", frozenset(holder.scopes))
        if _reads(principal):
            return holder.key_id, principal
    raise refused()


def _user_of(principal: Principal) -> UUID:
    return UUID(principal.actor.removeprefix("user "))


def _reads(principal: Principal) -> bool:
    return Permission.READER in principal.permissions


async def sign_out(service: Service, request: Request) -> None:
    token = token_of(request)
    if token is not None and service.auth:
        async with service.owner() as connection:
            await ui_sessions.end_session(connection, hash_of(token))


def new_token() -> str:
    return secrets.token_urlsafe(32)


def token_of(request: Request) -> str | None:
    token = request.cookies.get(COOKIE, "")
    return token if 20 <= len(token) <= LONGEST and token.isascii() else None


def hash_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def csrf_of(token: str) -> str:
    """What a form of ours carries."""
    return hmac.new(token.encode(), b"forms", hashlib.sha256).hexdigest()


def set_token(request: Request, response: Response, token: str) -> None:
    response.set_cookie(
        COOKIE,
        token,
        max_age=LIFETIME_SECONDS,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def is_ours(request: Request, token: str | None, sent: str) -> bool:
    """Whether a form was made by a page of ours, for this browser."""
    if has_foreign_host(request):
        return False
    return token is not None and hmac.compare_digest(csrf_of(token).encode(), sent.encode())
