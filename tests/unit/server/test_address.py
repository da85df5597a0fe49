"""What counts as this machine alone."""

import pytest

from aaiclick.errors import SettingsError
from aaiclick.server.address import is_loopback, open_socket, url_of


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST.", "::1", "[::1]"])
def test_loopback_is_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "127.0.0.1.nip.io", "", "127.1", "0x7f000001"]
)
def test_everything_else_is_not(host):
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org"])
def test_an_open_door_to_others_is_refused(host):
    with pytest.raises(SettingsError, match="loopback only"):
        open_socket(host, 0, auth=False)


def test_a_socket_knows_its_address():
    with open_socket("127.0.0.1", 0, auth=False) as opened:
        assert url_of(opened) == f"http://127.0.0.1:{opened.getsockname()[1]}"
