"""From a bearer token to who asks: an API key by its hash, or an identity provider's JWT by its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aaiclick.server.oidc import Provider
from aaiclick.server.permissions import Principal
from aaiclick.server.problems import CredentialError
from aaiclick.settings import Settings
from aaiclick.store.keys import MARK, verify_key
from aaiclick.store.users import find_user

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

LONGEST_TOKEN = 8_000


def bearer_token(headers: Sequence[str]) -> str | None:
    """The token of the Authorization header, None without one; raises on anything else than one bearer token."""
    if not headers:
        return None
    scheme, _, token = headers[0].partition(" ")
    token = token.strip()
    if len(headers) > 1 or scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN:
        raise refused()
    return token


def refused() -> CredentialError:
    """The same words whatever was wrong with it."""
    return CredentialError(
        "The credential opens nothing here.", remedy="Check that it is whole, not expired and not revoked."
    )


class Identity:
    """Knows the keys of the database and the tokens of the identity provider."""

    def __init__(self, settings: Settings) -> None:
        self.provider = Provider.of(settings)

    async def identify(self, connection: Connection, token: str) -> Principal:
        """Who this token stands for; raises CredentialError."""
        if token.startswith(f"{MARK}_"):
            holder = await verify_key(connection, token)
            if holder is None:
                raise refused()
            return Principal(holder.org_id, f"key {MARK}_{holder.prefix}", frozenset(holder.scopes))
        subject = None if self.provider is None else await self.provider.subject(token)
        user = None if subject is None else await find_user(connection, subject)
        if user is None:
            raise refused()
        return Principal(user["org_id"], f"user {user['id']}", frozenset({user["role"]}))
