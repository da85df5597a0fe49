"""Check of the server version."""

from __future__ import annotations

import pytest

from aaiclick.errors import UnsupportedServerError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.postgres_connections import check_version

ENDPOINT = PostgresEndpoint("db.example", 5432, "u", "d", "secret")


@pytest.mark.parametrize("major", [14, 15, 18, 21])
def test_supported_version_is_returned(major: int) -> None:
    assert check_version(ENDPOINT, major, f"PostgreSQL {major}.1 on x86_64").major_version == major


def test_old_version_is_refused() -> None:
    with pytest.raises(UnsupportedServerError, match=r"db\.example:5432 is PostgreSQL 13, which is too old") as caught:
        check_version(ENDPOINT, 13, "PostgreSQL 13.2 on x86_64")
    assert "PostgreSQL 14 or newer" in caught.value.remedy


def test_other_database_with_the_same_protocol_is_refused() -> None:
    with pytest.raises(UnsupportedServerError, match="is not PostgreSQL; it reports: CockroachDB"):
        check_version(ENDPOINT, 15, "CockroachDB CCL v23.1")
