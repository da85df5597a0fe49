-- The tables $1, which sessions $2 outside of tasks have made in ClickHouse alone, are known here from now on.
WITH given AS (SELECT * FROM unnest($1::text[], $2::bigint[]) AS g (name, session)),
alive AS (
    INSERT INTO table_sessions (id, in_clickhouse) SELECT DISTINCT session, true FROM given ORDER BY session
    ON CONFLICT (id) DO UPDATE SET seen_at = now()
),
known AS (
    INSERT INTO table_refcounts (table_name) SELECT DISTINCT name FROM given ORDER BY name ON CONFLICT DO NOTHING
)
INSERT INTO table_references (table_name, owner, owner_id)
SELECT DISTINCT name, 'SESSION'::reference_owner, session FROM given ORDER BY name ON CONFLICT DO NOTHING
