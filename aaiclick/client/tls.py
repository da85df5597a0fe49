"""TLS contexts of HTTP clients, shared since reading the certificates of all authorities takes 30 ms."""

from __future__ import annotations

import functools
import os
import ssl

import httpx


def find_ssl_context(url: str) -> ssl.SSLContext:
    """The context for a server; one for plain HTTP trusts no certificate."""
    if url.startswith("http://"):
        return _empty_context()
    return _default_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.cache
def _empty_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@functools.cache
def _default_context(*_: str | None) -> ssl.SSLContext:
    """One for each value of the variables that httpx reads."""
    return httpx.create_ssl_context()
