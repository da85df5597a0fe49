"""Browser sessions: a cookie with a random token; PostgreSQL stores the token's hash.

A session ends on sign-out, after LIFETIME_SECONDS, and when its API key is revoked or its user disabled. The CSRF token
is derived from the cookie; before sign-in, or without authentication, the cookie is a random value without a row.
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

from aaiclick import failpoints
from aaiclick.operations.actor import Actor, Permission
from aaiclick.server.app_state import NO_AUTH_PRINCIPAL, AppState
from aaiclick.server.authentication import invalid_credential
from aaiclick.server.csrf import has_foreign_host
from aaiclick.server.problem_responses import CredentialError
from aaiclick.store.tenancy import browser_sessions
from aaiclick.store.tenancy.api_keys import KEY_SCHEME, verify_key
from aaiclick.store.tenancy.users import find_user

if TYPE_CHECKING:
    from aaiclick.server.ui.state import UiState
    from aaiclick.store.postgres_connections import Connection

COOKIE = "aaiclick_session"
LIFETIME_SECONDS = 14 * 86_400
MAX_TOKEN_LENGTH = 100


async def find_actor(app_state: AppState, request: Request) -> Actor | None:
    """Return the actor of the browser's session; None if there is no session."""
    if not app_state.auth:
        await app_state.authenticate(request)  # refuses a foreign host
        return NO_AUTH_PRINCIPAL
    token = read_session_token(request)
    if token is None:
        return None
    async with app_state.owner_connection() as connection:
        holder = await browser_sessions.find_session(connection, hash_token(token))
    if holder is None:
        return None
    if holder.prefix is not None:
        return Actor(holder.org_id, f"key {KEY_SCHEME}_{holder.prefix}", frozenset(holder.scopes or ()))
    return Actor(holder.org_id, f"user {holder.user_id}", frozenset({holder.role or ""}))


async def sign_in(ui_state: UiState, credential: str, request_id: str | None) -> str:
    """Create a session for an API key or an identity provider's token and return its token; raises CredentialError."""
    method = "key" if credential.startswith(f"{KEY_SCHEME}_") else "token"
    async with ui_state.app_state.owner_connection() as connection:
        try:
            key_id, actor = await _verify_credential(ui_state.app_state, connection, credential)
        except CredentialError:
            await ui_state.sign_in_audit.write_entry(connection, "sign_in.refused", method, request_id)
            raise
        owner = SessionOwner(actor.name, actor.org_id, key_id, None if key_id else _parse_user_id(actor))
        return await _create_session(ui_state, connection, owner, method, request_id)


async def sign_in_subject(ui_state: UiState, subject: str, request_id: str | None) -> str | None:
    """Create a session for a subject of the identity provider; None if no user has this subject."""
    async with ui_state.app_state.owner_connection() as connection:
        user = await find_user(connection, subject)
        if user is None:
            await ui_state.sign_in_audit.write_entry(connection, "sign_in.refused", "provider", request_id)
            return None
        owner = SessionOwner(f"user {user.id}", user.org_id, None, user.id)
        return await _create_session(ui_state, connection, owner, "provider", request_id)


@dataclass(frozen=True, slots=True)
class SessionOwner:
    """API key or user that a session belongs to."""

    actor: str
    org_id: UUID
    key_id: UUID | None
    user_id: UUID | None


async def _create_session(
    ui_state: UiState, connection: Connection, owner: SessionOwner, method: str, request_id: str | None
) -> str:
    """Store a session and its audit entry in one transaction."""
    token = new_token()
    async with failpoints.transaction(connection, "sign_in"):
        await ui_state.sign_in_audit.write_entry(
            connection, "sign_in", method, request_id, actor=owner.actor, org_id=owner.org_id
        )
        await browser_sessions.create_session(
            connection, hash_token(token), key_id=owner.key_id, user_id=owner.user_id, lifetime_seconds=LIFETIME_SECONDS
        )
    return token


async def _verify_credential(app_state: AppState, connection: Connection, credential: str) -> tuple[UUID | None, Actor]:
    """Return the key's id (None for a token) and the actor; raises CredentialError."""
    if not credential.startswith(f"{KEY_SCHEME}_"):
        return None, await app_state.identify(connection, credential)
    api_key = await verify_key(connection, credential)
    if api_key is not None:
        actor = Actor(api_key.org_id, f"key {KEY_SCHEME}_{api_key.prefix}", frozenset(api_key.scopes))
        if _can_read(actor):
            return api_key.key_id, actor
    raise invalid_credential()


def _parse_user_id(actor: Actor) -> UUID:
    return UUID(actor.name.removeprefix("user "))


def _can_read(actor: Actor) -> bool:
    return Permission.READER in actor.permissions


async def sign_out(app_state: AppState, request: Request) -> None:
    token = read_session_token(request)
    if token is not None and app_state.auth:
        async with app_state.owner_connection() as connection:
            await browser_sessions.end_session(connection, hash_token(token))


def new_token() -> str:
    return secrets.token_urlsafe(32)


def read_session_token(request: Request) -> str | None:
    token = request.cookies.get(COOKIE, "")
    return token if 20 <= len(token) <= MAX_TOKEN_LENGTH and token.isascii() else None


def hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def derive_csrf_token(token: str) -> str:
    """Derive the CSRF token of forms from the session token."""
    return hmac.new(token.encode(), b"forms", hashlib.sha256).hexdigest()


def set_session_cookie(request: Request, response: Response, token: str) -> None:
    response.set_cookie(
        COOKIE,
        token,
        max_age=LIFETIME_SECONDS,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def has_valid_csrf_token(request: Request, token: str | None, csrf_token: str) -> bool:
    """Whether a form carries the CSRF token of this browser's session."""
    if has_foreign_host(request):
        return False
    return token is not None and hmac.compare_digest(derive_csrf_token(token).encode(), csrf_token.encode())
