"""Types of keys and timestamps, read from the migrated database."""

from __future__ import annotations

import asyncpg

SNOWFLAKES = {"jobs", "tasks", "groups", "workers"}
UUIDS = {"orgs", "users", "org_roles", "dag_versions", "job_definitions", "datasets", "dataset_versions", "api_keys"}


async def load_types(db: asyncpg.Connection) -> dict[tuple[str, str], str]:
    rows = await db.fetch(
        "SELECT table_name, column_name, data_type, column_default FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name <> 'alembic_version'"
    )
    return {(row["table_name"], row["column_name"]): row["data_type"] for row in rows}


async def test_catalogue_entities_have_uuid_keys(db: asyncpg.Connection) -> None:
    types = await load_types(db)
    assert {table: types[table, "id"] for table in UUIDS} == dict.fromkeys(UUIDS, "uuid")


async def test_every_reference_has_the_type_of_its_key(db: asyncpg.Connection) -> None:
    """By name: `dataset_uuid`, `dag_version_id` and so on, also without a foreign key."""
    types = await load_types(db)
    uuids = {
        "org_id", "user_id", "role_id", "dag_version_id", "definition_id", "dataset_uuid", "dataset_version",
        "input_dataset_uuid", "output_dataset_uuid", "created_by", "key_id", "lease_token",
    }  # fmt: skip
    del types["org_secrets", "key_id"]  # a fingerprint of the key that encrypted the value
    wrong = {key: data_type for key, data_type in types.items() if (key[1] in uuids) and data_type != "uuid"}
    assert wrong == {}
    assert uuids <= {column for _, column in types}
    numbers = {"job_id", "task_id", "group_id", "worker_id", "parent_group_id", "previous_id", "next_id", "cause_id"}
    assert {key: data_type for key, data_type in types.items() if key[1] in numbers and data_type != "bigint"} == {}


async def test_snowflake_keys_are_bigint_without_a_default(db: asyncpg.Connection) -> None:
    rows = await db.fetch(
        "SELECT table_name, data_type, column_default, is_identity FROM information_schema.columns"
        " WHERE column_name = 'id' AND table_name = ANY($1)",
        sorted(SNOWFLAKES),
    )
    assert {row["table_name"]: (row["data_type"], row["column_default"], row["is_identity"]) for row in rows} == (
        dict.fromkeys(SNOWFLAKES, ("bigint", None, "NO"))
    )


async def test_every_timestamp_has_a_time_zone(db: asyncpg.Connection) -> None:
    types = await load_types(db)
    assert {key for key, data_type in types.items() if data_type.startswith(("timestamp without", "time", "date"))} == {
        key for key, data_type in types.items() if data_type == "timestamp with time zone"
    }
    named = {
        key: data_type
        for key, data_type in types.items()
        if key[1].endswith("_at") or key[1] in {"at", "last_heartbeat"}
    }
    assert set(named.values()) == {"timestamp with time zone"}


async def test_creation_times_default_to_the_databases_clock(db: asyncpg.Connection) -> None:
    rows = await db.fetch(
        "SELECT table_name, column_default FROM information_schema.columns"
        " WHERE table_schema = 'public' AND column_name IN ('created_at', 'started_at', 'last_heartbeat')"
        " AND is_nullable = 'NO'"
    )
    assert {row["column_default"] for row in rows} == {"now()"}
