"""Verification of tokens of an OpenID Connect provider: signature, issuer, audience, times and pinned algorithms.

The endpoints come from the discovery document, which must name the configured issuer. Keys are fetched when a token
names an unknown key id, at most once in REFETCH_SECONDS, so that invented key ids do not flood the provider.
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
KEYS_TTL_SECONDS = 3600.0
FETCH_TIMEOUT_SECONDS = 5.0
LEEWAY_SECONDS = 30
MAX_SUBJECT_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class OidcEndpoints:
    """Endpoints from the provider's discovery document."""

    authorization: str
    token: str
    jwks: str
    basic: bool
    """Whether the client secret is sent by HTTP Basic authentication."""


class OidcProvider:
    """A trusted token issuer."""

    def __init__(self, issuer: str, audience: str, jwks_url: str | None, algorithms: tuple[str, ...]) -> None:
        self.issuer = issuer
        self._audience = audience
        self._jwks_url = jwks_url
        self._algorithms = list(algorithms)
        self._endpoints: OidcEndpoints | None = None
        self._endpoints_loaded = float("-inf")
        self._keys: dict[str, jwt.PyJWK] = {}
        self._keys_fetched = float("-inf")
        self._lock = asyncio.Lock()

    @classmethod
    def from_settings(cls, settings: Settings) -> OidcProvider | None:
        if settings.oidc_issuer is None or settings.oidc_audience is None:
            return None
        return cls(settings.oidc_issuer, settings.oidc_audience, settings.oidc_jwks_url, settings.oidc_algorithms)

    def is_issuer(self, name: object) -> bool:
        """Whether a name is the issuer's, with or without a final slash."""
        return name in (self.issuer, f"{self.issuer}/")

    async def verify_subject(self, token: str) -> str | None:
        """The subject of a token, or None if the token is invalid."""
        claims = await self.verify_claims(token, self._audience)
        return None if claims is None else subject_of(claims)

    async def verify_claims(self, token: str, audience: str) -> dict[str, object] | None:
        """The claims of a token for this audience, or None if the token is invalid."""
        try:
            header = jwt.get_unverified_header(token)
            key = await self._find_key(str(header.get("kid", "")))
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

    async def get_endpoints(self) -> OidcEndpoints:
        """The provider's endpoints; raises UnreachableError."""
        async with self._lock:
            return await self._load_endpoints()

    async def _load_endpoints(self) -> OidcEndpoints:
        if self._endpoints is None or time.monotonic() - self._endpoints_loaded > KEYS_TTL_SECONDS:
            url = f"{self.issuer}/.well-known/openid-configuration"
            try:
                document = cast("dict[str, Any]", await _fetch_json(url))
                if not self.is_issuer(document["issuer"]):
                    raise ValueError("the discovery document is of another issuer")
                methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
                self._endpoints = OidcEndpoints(
                    authorization=self._check_endpoint(document["authorization_endpoint"]),
                    token=self._check_endpoint(document["token_endpoint"]),
                    jwks=self._jwks_url or self._check_endpoint(document["jwks_uri"]),
                    basic="client_secret_basic" in methods,
                )
            except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                raise _provider_error(url, error) from error
            self._endpoints_loaded = time.monotonic()
        return self._endpoints

    def _check_endpoint(self, url: object) -> str:
        """Require an HTTP URL, and HTTPS if the issuer uses it."""
        scheme = urlsplit(url).scheme if isinstance(url, str) else ""
        if scheme not in ("http", "https") or (self.issuer.startswith("https:") and scheme != "https"):
            raise ValueError("an endpoint is not an HTTPS URL")
        return cast("str", url)

    async def _find_key(self, key_id: str) -> jwt.PyJWK | None:
        async with self._lock:
            age = time.monotonic() - self._keys_fetched
            if age > KEYS_TTL_SECONDS or (key_id not in self._keys and age > REFETCH_SECONDS):
                await self._fetch_keys()
        return self._keys.get(key_id)

    async def _fetch_keys(self) -> None:
        try:
            url = self._jwks_url or (await self._load_endpoints()).jwks
            key_set = jwt.PyJWKSet.from_dict(cast("dict[str, Any]", await _fetch_json(url)))
        except (httpx.HTTPError, jwt.PyJWTError, ValueError, UnreachableError) as error:
            log.warning("keys of the identity provider cannot be fetched: %s", type(error).__name__)
            if not self._keys:
                raise error if isinstance(error, UnreachableError) else _provider_error(self.issuer, error) from error
            self._keys_fetched = time.monotonic() - KEYS_TTL_SECONDS + REFETCH_SECONDS
            return
        self._keys = {str(key.key_id): key for key in key_set.keys if key.key_id}
        self._keys_fetched = time.monotonic()


def subject_of(claims: dict[str, Any]) -> str | None:
    """The subject, or None if PostgreSQL cannot store it (NUL, half of a surrogate pair)."""
    subject = claims["sub"]
    is_text = isinstance(subject, str) and 0 < len(subject) <= MAX_SUBJECT_CHARACTERS and subject.isprintable()
    return subject if is_text else None


async def _fetch_json(url: str) -> object:
    async with httpx.AsyncClient(timeout=FETCH_TIMEOUT_SECONDS) as client:
        response = await client.get(url)
        response.raise_for_status()
    return response.json()


def _provider_error(url: str, error: Exception) -> UnreachableError:
    return UnreachableError(
        f"Invalid response of the identity provider at {url}: {type(error).__name__}.",
        remedy="Check AAICLICK_OIDC_ISSUER and the network connection to the provider.",
    )
