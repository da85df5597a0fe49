"""A PostgreSQL that cannot write gives 503 with Retry-After, not 500."""

from __future__ import annotations

import pytest

from tests.integration.server.conftest import Site

ITEMS = {"items": [{"type": "t"}]}
JOB = {"name": "x", "entrypoint": "m.f"}


def end_sessions(site: Site) -> None:
    site.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.fixture
def read_only(site: Site):
    name = site.sql("SELECT current_database() AS name")[0]["name"]
    site.sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    end_sessions(site)
    yield
    site.run(lambda connection: _reset(connection, name))
    end_sessions(site)


async def _reset(connection, name: str) -> None:
    await connection.execute("SET default_transaction_read_only = off")
    await connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')


def test_read_only_database_gives_503(site: Site, read_only) -> None:
    for path, body in (("/v1/jobs", JOB), ("/v1/tasks", ITEMS), ("/v1/types/t/pause", None)):
        response = site.as_("writer").post(path, json=body)
        assert response.status_code == 503, response.text
        assert response.json()["code"] == "unavailable"
        assert int(response.headers["retry-after"]) > 0


@pytest.mark.parametrize("code", ["53100", "53200", "53400", "58030"])
def test_full_database_gives_503(site: Site, code: str) -> None:
    """Error codes of a full disk, no memory, the limit of temporary files and an I/O error."""
    site.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '{code}'; END$$"
    )
    site.sql("CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION refuse()")
    try:
        for path, body in (("/v1/jobs", JOB), ("/v1/tasks", ITEMS)):
            response = site.as_("writer").post(path, json=body)
            assert response.status_code == 503, response.text
            assert "retry-after" in response.headers
            assert "device" not in response.text
    finally:
        site.sql("DROP TRIGGER refuse ON tasks")
        site.sql("DROP FUNCTION refuse()")


def test_full_temporary_tablespace_gives_503(site: Site) -> None:
    """PostgreSQL hits the limit during a sort."""
    name = site.sql("SELECT current_database() AS name")[0]["name"]
    site.sql(
        "CREATE FUNCTION sort_much() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN PERFORM count(*) FROM (SELECT x FROM generate_series(1, 300000) x ORDER BY md5(x::text)) s; "
        "RETURN NEW; END$$"
    )
    site.sql("CREATE TRIGGER sort_much BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION sort_much()")
    site.sql(f"ALTER DATABASE \"{name}\" SET temp_file_limit = '1MB'")
    site.sql(f"ALTER DATABASE \"{name}\" SET work_mem = '64kB'")
    end_sessions(site)
    try:
        assert site.as_("writer").post("/v1/tasks", json=ITEMS).status_code == 503
    finally:
        site.sql(f'ALTER DATABASE "{name}" RESET ALL')
        site.sql("DROP TRIGGER sort_much ON tasks")
        site.sql("DROP FUNCTION sort_much()")
        end_sessions(site)
