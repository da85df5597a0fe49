"""The pytest plugin for users: an empty database of each kind per test."""

import asyncpg
import pytest

from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_ID

pytest_plugins = ["pytester"]


async def rows(endpoint, statement: str):
    connection = await asyncpg.connect(endpoint.dsn)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize("round_number", [1, 2, 3])
async def test_every_test_finds_a_clean_schema(aaiclick_postgres, round_number):
    assert [row["id"] for row in await rows(aaiclick_postgres, "SELECT id FROM orgs")] == [DEFAULT_ORG_ID]
    await rows(aaiclick_postgres, "INSERT INTO orgs (name, slug) VALUES ('mine', 'mine') RETURNING id")
    await rows(aaiclick_postgres, f"UPDATE orgs SET name = 'changed' WHERE id = '{DEFAULT_ORG_ID}' RETURNING id")


async def test_default_row_is_restored(aaiclick_postgres):
    assert [row["name"] for row in await rows(aaiclick_postgres, "SELECT name FROM orgs")] != ["changed"]


@pytest.mark.parametrize("round_number", [1, 2])
async def test_a_changed_schema_does_not_reach_the_next_test(aaiclick_postgres, round_number):
    assert not await rows(aaiclick_postgres, "SELECT 1 FROM pg_tables WHERE tablename = 'extra'")
    await rows(aaiclick_postgres, "CREATE TABLE extra (a int)")


def test_settings_point_at_this_tests_databases(aaiclick_env, aaiclick_postgres, aaiclick_clickhouse):
    assert get_settings().postgres == aaiclick_postgres
    assert get_settings().clickhouse == aaiclick_clickhouse


def test_a_users_project_gets_the_fixtures_and_leaves_nothing_running(pytester, monkeypatch):
    monkeypatch.delenv("AAICLICK_TEST_HOME")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        """
        import os, pathlib

        def test_uses_both(aaiclick_postgres, aaiclick_clickhouse):
            pathlib.Path("home").write_text(os.environ["AAICLICK_TEST_HOME"])
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    home = pytester.path / "home"
    assert not pytester.path.joinpath(home.read_text()).exists()
