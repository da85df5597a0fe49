"""Tokens of an OpenID Connect provider: signature, issuer, audience and times are checked, algorithms are pinned.

Where the provider's endpoints are, its discovery document says, which must be the configured issuer's own. Its keys are
fetched when a token names one that is not known, at most once in REFETCH_SECONDS: a stream of tokens with made-up key
ids costs the provider nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

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


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the provider does what."""

    authorization: str
    token: str
    jwks: str
    basic: bool
    """Whether a client's password goes into a header."""


class Provider:
    """One issuer whose tokens are believed."""

    def __init__(self, issuer: str, audience: str, jwks_url: str | None, algorithms: tuple[str, ...]) -> None:
        self.issuer = issuer
        self._audience = audience
        self._jwks_url = jwks_url
        self._algorithms = list(algorithms)
        self._endpoints: Endpoints | None = None
        self._discovered = float("-inf")
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._lock = asyncio.Lock()

    @classmethod
    def of(cls, settings: Settings) -> Provider | None:
        if settings.oidc_issuer is None or settings.oidc_audience is None:
            return None
        return cls(settings.oidc_issuer, settings.oidc_audience, settings.oidc_jwks_url, settings.oidc_algorithms)

    def is_issuer(self, name: object) -> bool:
        """Whether this names the issuer; some end theirs with a slash."""
        return name in (self.issuer, f"{self.issuer}/")

    async def subject(self, token: str) -> str | None:
        """Whom the token names; None if anything about it is wrong."""
        claims = await self.claims(token, self._audience)
        return None if claims is None else subject_of(claims)

    async def claims(self, token: str, audience: str) -> dict[str, Any] | None:
        """What the token says to this audience; None if anything about it is wrong."""
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid", "")))
            if key is None or header.get("alg") not in self._algorithms:
                return None
            return jwt.decode(
                token,
                key.key,
                algorithms=self._algorithms,
                audience=audience,
                issuer=[self.issuer, f"{self.issuer}/"],
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None

    async def endpoints(self) -> Endpoints:
        """What the issuer says of itself; raises UnreachableError."""
        async with self._lock:
            return await self._discover()

    async def _discover(self) -> Endpoints:
        if self._endpoints is None or time.monotonic() - self._discovered > KEEP_SECONDS:
            url = f"{self.issuer}/.well-known/openid-configuration"
            try:
                said = cast("dict[str, Any]", await _get(url))
                if not self.is_issuer(said["issuer"]):
                    raise ValueError("it speaks for another issuer")
                methods = said.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
                self._endpoints = Endpoints(
                    authorization=self._fit(said["authorization_endpoint"]),
                    token=self._fit(said["token_endpoint"]),
                    jwks=self._jwks_url or self._fit(said["jwks_uri"]),
                    basic="client_secret_basic" in methods,
                )
            except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                raise _away(url, error) from error
            self._discovered = time.monotonic()
        return self._endpoints

    def _fit(self, url: object) -> str:
        """An endpoint that is an address, and no less safe than the issuer's."""
        scheme = urlsplit(url).scheme if isinstance(url, str) else ""
        if scheme not in ("http", "https") or (self.issuer.startswith("https:") and scheme != "https"):
            raise ValueError("an endpoint is no https address")
        return cast("str", url)

    async def _key(self, key_id: str) -> jwt.PyJWK | None:
        async with self._lock:
            age = time.monotonic() - self._fetched
            if age > KEEP_SECONDS or (key_id not in self._keys and age > REFETCH_SECONDS):
                await self._fetch()
        return self._keys.get(key_id)

    async def _fetch(self) -> None:
        try:
            url = self._jwks_url or (await self._discover()).jwks
            found = jwt.PyJWKSet.from_dict(cast("dict[str, Any]", await _get(url)))
        except (httpx.HTTPError, jwt.PyJWTError, ValueError, UnreachableError) as error:
            log.warning("the keys of the identity provider cannot be read: %s", type(error).__name__)
            if not self._keys:
                raise error if isinstance(error, UnreachableError) else _away(self.issuer, error) from error
            self._fetched = time.monotonic() - KEEP_SECONDS + REFETCH_SECONDS
            return
        self._keys = {str(key.key_id): key for key in found.keys if key.key_id}
        self._fetched = time.monotonic()


def subject_of(claims: dict[str, Any]) -> str | None:
    """The subject, if PostgreSQL can store it: no NUL and no half of a surrogate pair."""
    subject = claims["sub"]
    is_text = isinstance(subject, str) and 0 < len(subject) <= LONGEST_SUBJECT and subject.isprintable()
    return subject if is_text else None


async def _get(url: str) -> object:
    async with httpx.AsyncClient(timeout=FETCH_TIMEOUT_SECONDS) as client:
        response = await client.get(url)
        response.raise_for_status()
    return response.json()


def _away(url: str, error: Exception) -> UnreachableError:
    return UnreachableError(
        f"The identity provider at {url} does not answer as it should: {type(error).__name__}.",
        remedy="Check AAICLICK_OIDC_ISSUER and that this machine reaches it.",
    )
