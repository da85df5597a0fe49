"""Tokens of an OpenID Connect provider: signature, issuer, audience and times are checked, algorithms are pinned.

The provider's keys are fetched when a token names one that is not known, at most once in REFETCH_SECONDS: a stream of
tokens with made-up key ids costs the provider nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import httpx
import jwt

from aaiclick.errors import UnreachableError
from aaiclick.settings import Settings

log = logging.getLogger("aaiclick.server")

REFETCH_SECONDS = 30.0
KEEP_SECONDS = 3600.0
FETCH_TIMEOUT_SECONDS = 5.0
LEEWAY_SECONDS = 30
LONGEST_SUBJECT = 500


class Provider:
    """One issuer whose tokens are believed."""

    def __init__(self, issuer: str, audience: str, jwks_url: str, algorithms: tuple[str, ...]) -> None:
        self._issuer = issuer
        self._audience = audience
        self._jwks_url = jwks_url
        self._algorithms = list(algorithms)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._lock = asyncio.Lock()

    @classmethod
    def of(cls, settings: Settings) -> Provider | None:
        if settings.oidc_issuer is None or settings.oidc_audience is None:
            return None
        jwks_url = settings.oidc_jwks_url or f"{settings.oidc_issuer}/.well-known/jwks.json"
        return cls(settings.oidc_issuer, settings.oidc_audience, jwks_url, settings.oidc_algorithms)

    async def subject(self, token: str) -> str | None:
        """Whom the token names; None if anything about it is wrong."""
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid", "")))
            if key is None or header.get("alg") not in self._algorithms:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        subject = claims["sub"]
        return subject if isinstance(subject, str) and 0 < len(subject) <= LONGEST_SUBJECT else None

    async def _key(self, key_id: str) -> jwt.PyJWK | None:
        async with self._lock:
            age = time.monotonic() - self._fetched
            if age > KEEP_SECONDS or (key_id not in self._keys and age > REFETCH_SECONDS):
                await self._fetch()
        return self._keys.get(key_id)

    async def _fetch(self) -> None:
        try:
            async with httpx.AsyncClient(timeout=FETCH_TIMEOUT_SECONDS) as client:
                response = await client.get(self._jwks_url)
                response.raise_for_status()
            found = jwt.PyJWKSet.from_dict(response.json())
        except (httpx.HTTPError, jwt.PyJWTError, ValueError) as error:
            log.warning("the keys of the identity provider cannot be read: %s", type(error).__name__)
            if not self._keys:
                raise UnreachableError(f"The identity provider at {self._jwks_url} does not answer.") from error
            self._fetched = time.monotonic() - KEEP_SECONDS + REFETCH_SECONDS
            return
        self._keys = {str(key.key_id): key for key in found.keys if key.key_id}
        self._fetched = time.monotonic()
