"""The guard in front of downloads: no request to a private, local or otherwise special address.

A name is resolved once, every address it has is checked, and the connection goes to exactly those addresses: a name
that
changes its mind between the check and the connection gains nothing. Redirects are followed here, each checked like
the first.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from aaiclick.data.errors import ForbiddenAddressError, IngestError

MAX_REDIRECTS = 5
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check_address(address: str, host: str) -> None:
    """Refuse an address that is not a public one."""
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = (
            ip.ipv4_mapped or ip.sixtofour or (ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in NAT64 else None)
        )
        ip = embedded or ip
    if not ip.is_global or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        raise ForbiddenAddressError(
            f"{host} is at {address}, which is not a public address.",
            remedy="Pass allow_private=True if the server is meant to be reached.",
        )


def check_url(url: str, allow_private: bool) -> None:
    """Refuse URLs that are not http(s), that carry credentials, or whose host is a forbidden address written out."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ForbiddenAddressError(f"Only http and https URLs are fetched, not {parts.scheme or url[:40]!r}.")
    if parts.username or parts.password:
        raise ForbiddenAddressError("The URL carries a user name or password.", remedy="Use a presigned URL.")
    if allow_private:
        return
    try:
        ipaddress.ip_address(parts.hostname.split("%")[0])
    except ValueError:
        return
    check_address(parts.hostname, parts.hostname)


def without_query(url: str) -> str:
    """A URL as it may be shown: the query of a presigned one is a secret, and so is a password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


class PublicResolver(AbstractResolver):
    """Resolves names, and refuses those with an address that is not public."""

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
