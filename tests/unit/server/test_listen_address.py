"""Loopback addresses and the listening socket."""

import pytest

from aaiclick.errors import SettingsError
from aaiclick.server.listen_address import is_loopback, open_socket, socket_url


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST.", "::1", "[::1]"])
def test_loopback_addresses_are_recognised(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "127.0.0.1.nip.io", "", "127.1", "0x7f000001"]
)
def test_other_addresses_are_not_loopback(host):
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org"])
def test_public_address_without_authentication_is_refused(host):
    with pytest.raises(SettingsError, match="loopback only"):
        open_socket(host, 0, auth=False)


def test_socket_url_has_the_bound_port():
    with open_socket("127.0.0.1", 0, auth=False) as opened:
        assert socket_url(opened) == f"http://127.0.0.1:{opened.getsockname()[1]}"
