"""Models and migrations create the same schema, compared in the system catalog."""

from __future__ import annotations

import asyncpg

from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.migrate import check_schema, upgrade
from aaiclick.store.models import metadata
from aaiclick.store.postgres_connections import create_engine

OURS = "n.nspname = 'public' AND c.relname <> 'aaiclick_version' AND c.relname <> 'aaiclick_version_pkc'"
CATALOG = {
    "columns": f"""
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               a.attstorage, a.attcompression, a.attstattarget, pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE {OURS} AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped""",
    "tables": f"""
        SELECT c.relname, c.relkind, c.relpersistence, (SELECT array_agg(o ORDER BY o) FROM unnest(c.reloptions) o)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {OURS}""",
    "constraints": f"""
        SELECT c.relname, k.conname, k.condeferrable, k.convalidated, pg_get_constraintdef(k.oid)
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE {OURS}""",
    "indexes": f"""
        SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisvalid
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {OURS}""",
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, tgenabled, pg_get_triggerdef(oid)
        FROM pg_trigger WHERE NOT tgisinternal""",
    "functions": """
        SELECT proname, pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'public'""",
    "policies": f"""
        SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity, p.polname, p.polpermissive, p.polcmd,
               pg_get_expr(p.polqual, c.oid), pg_get_expr(p.polwithcheck, c.oid)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_policy p ON p.polrelid = c.oid
        WHERE {OURS} AND c.relkind = 'r'""",
    "enums": """
        SELECT t.typname, array_agg(e.enumlabel ORDER BY e.enumsortorder)
        FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid GROUP BY t.typname""",
    "first rows": "SELECT id, name, slug FROM orgs",
}


async def catalog(endpoint: PostgresEndpoint) -> dict[str, list[str]]:
    connection = await asyncpg.connect(endpoint.dsn)
    try:
        return {part: sorted(str(tuple(row)) for row in await connection.fetch(sql)) for part, sql in CATALOG.items()}
    finally:
        await connection.close()


async def test_models_and_migrations_create_the_same_schema(
    postgres_endpoint: PostgresEndpoint, second_endpoint: PostgresEndpoint
) -> None:
    await upgrade(postgres_endpoint)
    engine = create_engine(second_endpoint)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()
    by_migration, by_models = await catalog(postgres_endpoint), await catalog(second_endpoint)
    for part in CATALOG:
        assert by_migration[part] == by_models[part], part
    assert by_migration["triggers"]


async def test_alembic_sees_no_difference(migrated: PostgresEndpoint) -> None:
    await check_schema(migrated)


async def test_compared_catalog_queries_return_rows(template: PostgresEndpoint) -> None:
    assert [part for part, rows in (await catalog(template)).items() if not rows] == []


async def test_every_foreign_key_has_an_index(db: asyncpg.Connection) -> None:
    """Without an index, deleting the referenced row scans the table."""
    missing = await db.fetch("""
        SELECT conrelid::regclass::text AS relation, conname FROM pg_constraint k
        WHERE contype = 'f' AND k.confrelid <> 'orgs'::regclass AND NOT EXISTS (
            SELECT FROM pg_index i WHERE i.indrelid = k.conrelid
            AND (i.indkey::smallint[])[0] = ANY (k.conkey))""")
    assert missing == []


async def test_all_timestamps_have_a_time_zone(db: asyncpg.Connection) -> None:
    naive = await db.fetch("""
        SELECT table_name, column_name FROM information_schema.columns
        WHERE table_schema = 'public' AND data_type LIKE 'timestamp without%'""")
    assert naive == []


async def test_claim_order_uses_the_ready_index(db: asyncpg.Connection) -> None:
    await db.execute("INSERT INTO tasks (id, type) SELECT n, 'x' FROM generate_series(1, 5000) AS n")
    await db.execute("ANALYZE tasks")
    plan = await db.fetch("""
        EXPLAIN SELECT id FROM tasks WHERE readiness = 'READY' AND org_id = '00000000-0000-4000-8000-000000000001'
        AND queue = 'default' ORDER BY priority DESC, COALESCE(job_id, id), id LIMIT 100 FOR UPDATE SKIP LOCKED""")
    text = "\n".join(row[0] for row in plan)
    assert "using tasks_ready" in text
    assert "Sort" not in text
