"""Authentication of bearer tokens: API keys by their hash, JWTs of the identity provider by their signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aaiclick.operations.actor import Actor
from aaiclick.server.oidc_tokens import OidcProvider
from aaiclick.server.problem_responses import CredentialError
from aaiclick.settings import Settings
from aaiclick.store.tenancy.api_keys import KEY_SCHEME, verify_key
from aaiclick.store.tenancy.users import find_user

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_TOKEN_CHARACTERS = 8_000


def bearer_token(headers: Sequence[str]) -> str | None:
    """The token of the Authorization header, or None; raises CredentialError unless it is one bearer token."""
    if not headers:
        return None
    scheme, _, token = headers[0].partition(" ")
    token = token.strip()
    if len(headers) > 1 or scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN_CHARACTERS:
        raise invalid_credential()
    return token


def invalid_credential() -> CredentialError:
    """The error for every invalid credential; it does not disclose the reason."""
    return CredentialError("Invalid credential.", remedy="Check that it is complete, not expired and not revoked.")


class Authenticator:
    """Checks API keys and tokens of the identity provider."""

    def __init__(self, settings: Settings) -> None:
        self.provider = OidcProvider.from_settings(settings)

    async def identify(self, connection: Connection, token: str) -> Actor:
        """Authenticate a token; raises CredentialError."""
        if token.startswith(f"{KEY_SCHEME}_"):
            api_key = await verify_key(connection, token)
            if api_key is None:
                raise invalid_credential()
            return Actor(api_key.org_id, f"key {KEY_SCHEME}_{api_key.prefix}", frozenset(api_key.scopes))
        subject = None if self.provider is None else await self.provider.verify_subject(token)
        user = None if subject is None else await find_user(connection, subject)
        if user is None:
            raise invalid_credential()
        return Actor(user.org_id, f"user {user.id}", frozenset({user.role}))
