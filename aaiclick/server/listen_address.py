"""Listening socket of the server. Imports nothing of the server itself, which is heavy."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from aaiclick.errors import SettingsError

BACKLOG = 2_048


@dataclass(frozen=True)
class TlsFiles:
    """Certificate chain and private key of the server, in PEM format."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise SettingsError unless the server can use the files."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SettingsError(
                f"The server cannot use {self.certificate} with {self.key}: {reason}.",
                remedy="--tls-cert is a PEM file with the certificate and its chain, --tls-key its unencrypted key.",
            ) from None


def open_socket(host: str, port: int, *, auth: bool) -> socket.socket:
    """Open the listening socket; without authentication only a loopback address is accepted."""
    if not auth and not is_loopback(host):
        raise SettingsError(
            f"Without authentication the server listens on loopback only, not at {host}.",
            remedy="Leave out --no-auth, or use --host 127.0.0.1.",
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"The server cannot listen at {host}:{port}: {error.strerror or error}.",
            remedy="Choose another address: --host and --port, or AAICLICK_SERVER_HOST and AAICLICK_SERVER_PORT.",
        ) from None


def socket_url(opened: socket.socket, scheme: str = "http") -> str:
    host, port = opened.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address is loopback."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
