"""What runs a worker runs it over both transports, unless it says why one is enough."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aaiclick.settings import get_settings
from tests.integration.transports import Way, served, transports_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "transport" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("directly")
        metafunc.parametrize("transport", transports_of(mark), indirect=True)


@pytest.fixture
def transport(request) -> str:
    """`direct` or `server`."""
    return request.param


@pytest.fixture
def way(transport, aaiclick_env, aaiclick_postgres, tmp_path, monkeypatch) -> Iterator[Way]:
    """How workers of this test reach its database."""
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    get_settings.cache_clear()
    if transport == "direct":
        yield Way(aaiclick_postgres)
        return
    with served(aaiclick_postgres) as server:
        yield Way(server)
