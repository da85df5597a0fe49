-- The session $1 refers to the tables $2 exactly so many times ($3), and not to the tables $4: whole numbers, not
-- changes, so that saying it twice does no harm. A table whose drop has begun is not referred to; returns those that are.
WITH alive AS (
    INSERT INTO table_sessions (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET seen_at = now()
),
known AS (
    INSERT INTO table_refcounts (table_name) SELECT name FROM unnest($2::text[] || $4::text[]) AS n (name) ORDER BY name
    ON CONFLICT DO NOTHING
),
locked AS MATERIALIZED (
    SELECT table_name, dropping_at FROM table_refcounts WHERE table_name = ANY ($2::text[])
    ORDER BY table_name FOR NO KEY UPDATE
),
more AS (
    INSERT INTO table_references (table_name, owner, owner_id, refs)
    SELECT g.name, 'SESSION', $1, g.refs FROM unnest($2::text[], $3::int[]) AS g (name, refs)
    WHERE g.name NOT IN (SELECT table_name FROM locked WHERE dropping_at IS NOT NULL) ORDER BY g.name
    ON CONFLICT (table_name, owner, owner_id, attempt, name) DO UPDATE SET refs = EXCLUDED.refs
    RETURNING table_name
),
gone AS (
    DELETE FROM table_references r USING unnest($4::text[]) AS g (name)
    WHERE r.table_name = g.name AND r.owner = 'SESSION' AND r.owner_id = $1
)
SELECT table_name FROM more
