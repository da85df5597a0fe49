"""The guard in front of downloads: no request to a private, local or otherwise special address.

A name is resolved once, every address it has is checked, and the connection goes to exactly those addresses: a name
that changes its mind between the check and the connection gains nothing. Whoever connects reads the URL in the same way
(`yarl`), so that no spelling is a name here and an address there. Redirects are followed here, each checked like the
first. AAICLICK_PRIVATE_HOSTS has the exceptions.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from aaiclick.data.errors import ForbiddenAddressError, IngestError
from aaiclick.settings import get_settings

MAX_REDIRECTS = 5
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check_address(address: str, host: str) -> None:
    """Refuse an address that is neither a public one nor one of those that the operator allows."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        raise ForbiddenAddressError(f"{host} is no address.", remedy="Write it like 192.0.2.1.") from None
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = (
            ip.ipv4_mapped or ip.sixtofour or (ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in NAT64 else None)
        )
        ip = embedded or ip
    public = ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)
    if not public and not get_settings().private_hosts.have(host, ip):
        raise ForbiddenAddressError(
            f"{host} is at {address}, which is not a public address.",
            remedy="If the server is meant to be reached, the operator adds it to AAICLICK_PRIVATE_HOSTS where workers "
            "run (code of your own may say allow_private=True).",
        )


def check_url(url: str, allow_private: bool) -> None:
    """Refuse URLs that are not http(s), that carry credentials, or whose host is a forbidden address written out."""
    try:
        parts = URL(url)
    except ValueError:
        raise ForbiddenAddressError(f"{url[:40]!r} is no URL.") from None
    if parts.scheme not in ("http", "https") or not parts.raw_host:
        raise ForbiddenAddressError(f"Only http and https URLs are fetched, not {parts.scheme or url[:40]!r}.")
    if parts.user or parts.password:
        raise ForbiddenAddressError("The URL carries a user name or password.", remedy="Use a presigned URL.")
    if not allow_private and _looks_like_address(parts.raw_host):
        check_address(parts.raw_host, parts.raw_host)


def _looks_like_address(host: str) -> bool:
    """Whether aiohttp takes it for an address, and asks no resolver."""
    return ":" in host or host.replace(".", "").isdigit()


def without_query(url: str) -> str:
    """A URL as it may be shown: the query of a presigned one is a secret, and so is a password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


class PublicResolver(AbstractResolver):
    """Resolves names, and refuses those with an address that is not to be reached."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        except OSError as error:
            raise IngestError(f"The host {host!r} is not known: {error.strerror}.") from None
        for *_, place in found:
            check_address(str(place[0]), host)
        return [
            ResolveResult(
                hostname=host, host=str(place[0]), port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST
            )
            for kind, _, _, _, place in found
        ]

    async def close(self) -> None:
        """Nothing to close."""


def guarded_session(allow_private: bool) -> aiohttp.ClientSession:
    connector = (
        aiohttp.TCPConnector()
        if allow_private
        else aiohttp.TCPConnector(resolver=PublicResolver(), use_dns_cache=False)
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=60),
        auto_decompress=False,
    )


async def guarded_get(session: aiohttp.ClientSession, url: str, allow_private: bool) -> aiohttp.ClientResponse:
    """GET, with redirects checked one by one."""
    for _ in range(MAX_REDIRECTS + 1):
        check_url(url, allow_private)
        response = await session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"})
        if response.status not in (301, 302, 303, 307, 308):
            return response
        target = response.headers.get("Location", "")
        response.release()
        url = urljoin(url, target)
    raise IngestError(f"{without_query(url)} redirects more than {MAX_REDIRECTS} times.")
