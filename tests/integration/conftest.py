"""A cloud for all; and what runs a worker runs it over both transports, unless it says why one is enough."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aaiclick.settings import get_settings
from tests.integration.amazon import moto_server
from tests.integration.transports import Host, Way, transports_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "transport" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("directly")
        metafunc.parametrize("transport", transports_of(mark), indirect=True)


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """A cloud on loopback; whoever uses it empties it first."""
    yield from moto_server()


@pytest.fixture
def transport(request) -> str:
    """`direct` or `server`."""
    return request.param


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


@pytest.fixture
def way(transport, host, aaiclick_env, aaiclick_postgres, tmp_path, monkeypatch) -> Iterator[Way]:
    """How workers of this test reach its database."""
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    get_settings.cache_clear()
    if transport == "direct":
        yield Way(aaiclick_postgres)
        return
    with host.serve(aaiclick_postgres) as server:
        yield Way(server)
