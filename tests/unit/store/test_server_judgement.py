"""Judging a server by what it says about itself."""

from __future__ import annotations

import pytest

from aaiclick.errors import UnsupportedServerError
from aaiclick.store.engine import judge_server
from aaiclick.targets import PostgresTarget

TARGET = PostgresTarget("db.example", 5432, "u", "d", "secret")


@pytest.mark.parametrize("major", [14, 15, 18, 21])
def test_a_supported_version_is_reported(major: int) -> None:
    assert judge_server(TARGET, major, f"PostgreSQL {major}.1 on x86_64").major_version == major


def test_an_old_version_is_refused_with_the_version_that_is_needed() -> None:
    with pytest.raises(UnsupportedServerError, match=r"db\.example:5432 is PostgreSQL 13, which is too old") as caught:
        judge_server(TARGET, 13, "PostgreSQL 13.2 on x86_64")
    assert "PostgreSQL 14 or newer" in caught.value.remedy


def test_another_database_that_speaks_the_protocol_is_refused() -> None:
    with pytest.raises(UnsupportedServerError, match="is not PostgreSQL; it says: CockroachDB"):
        judge_server(TARGET, 15, "CockroachDB CCL v23.1")
