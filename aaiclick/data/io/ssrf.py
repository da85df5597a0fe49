"""SSRF protection for downloads: no request to a private, local or reserved address.

A host name is resolved once, all its addresses are checked, and the connection uses exactly those, which defeats DNS
rebinding. The check and the connection parse the URL with the same library (`yarl`), so that no spelling is a name to
one and an address to the other. Every redirect is checked like the first URL. AAICLICK_PRIVATE_HOSTS lists exceptions.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from aaiclick.data.errors import ForbiddenAddressError, IngestError
from aaiclick.settings import get_settings

MAX_REDIRECTS = 5
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check_address(address: str, host: str) -> None:
    """Raise ForbiddenAddressError unless the address is public or allowed by the operator."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        raise ForbiddenAddressError(f"{host} is not an IP address.", remedy="Write it like 192.0.2.1.") from None
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = (
            ip.ipv4_mapped or ip.sixtofour or (ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in NAT64 else None)
        )
        ip = embedded or ip
    is_site_local = isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local
    public = ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified or is_site_local)
    if not public and not get_settings().private_hosts.allow_host(host, ip):
        raise ForbiddenAddressError(
            f"{host} is at {address}, which is not a public address.",
            remedy="To allow it, the operator adds it to AAICLICK_PRIVATE_HOSTS where workers run (your own code may "
            "pass allow_private=True).",
        )


def check_url(url: str, allow_private: bool) -> None:
    """Refuse URLs that are not http(s), that contain credentials, or that have a forbidden IP address as host."""
    try:
        parts = URL(url)
    except ValueError:
        raise ForbiddenAddressError(f"{url[:40]!r} is not a URL.") from None
    if parts.scheme not in ("http", "https") or not parts.raw_host:
        raise ForbiddenAddressError(f"Only http and https URLs are fetched, not {parts.scheme or url[:40]!r}.")
    if parts.user or parts.password:
        raise ForbiddenAddressError("The URL contains a user name or password.", remedy="Use a presigned URL.")
    if not allow_private and _looks_like_address(parts.raw_host):
        check_address(parts.raw_host, parts.raw_host)


def _looks_like_address(host: str) -> bool:
    """Whether aiohttp treats the host as an address and does not call the resolver."""
    return ":" in host or host.replace(".", "").isdigit()


def without_query(url: str) -> str:
    """Remove query and credentials from a URL before it is shown: in a presigned URL both are secret."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[tuple[Any, ...]]:
    """`getaddrinfo` in a thread of its own: a name server that does not answer delays nothing else."""
    threads = ThreadPoolExecutor(1, thread_name_prefix="lookup")
    look_up = partial(socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM)
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, look_up)
    finally:
        threads.shutdown(wait=False)


class PublicResolver(AbstractResolver):
    """DNS resolver that refuses hosts with a forbidden address."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        try:
            addresses = await _look_up(host, port, family)
        except OSError as error:
            raise IngestError(f"The host {host!r} cannot be resolved: {error.strerror}.") from None
        except UnicodeError:  # a label is empty or has more than 63 characters
            raise IngestError(f"The host {host!r:.80} is not a valid name.") from None
        for *_, sockaddr in addresses:
            check_address(str(sockaddr[0]), host)
        return [
            ResolveResult(
                hostname=host,
                host=str(sockaddr[0]),
                port=port,
                family=address_family,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address_family, _, _, _, sockaddr in addresses
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
    """Send a GET request; every redirect is checked."""
    for _ in range(MAX_REDIRECTS + 1):
        check_url(url, allow_private)
        response = await session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"})
        if response.status not in (301, 302, 303, 307, 308):
            return response
        location = response.headers.get("Location", "")
        response.release()
        url = urljoin(url, location)
    raise IngestError(f"{without_query(url)} redirects more than {MAX_REDIRECTS} times.")
