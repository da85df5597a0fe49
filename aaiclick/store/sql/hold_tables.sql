-- Attempts want to read tables that others made. A table whose drop has begun, or that nobody knows, is not held; the
-- row lock decides between this and the mark of a drop.
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::uuid[]) AS g (name, id, attempt, token)
),
live AS MATERIALIZED (
    SELECT g.name, g.id, g.attempt FROM given g CROSS JOIN LATERAL (
        SELECT FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token FOR SHARE) t
),
there AS MATERIALIZED (
    SELECT table_name FROM table_refcounts WHERE table_name = ANY (ARRAY(SELECT name FROM live))
      AND dropping_at IS NULL ORDER BY table_name FOR NO KEY UPDATE
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, attempt)
    SELECT DISTINCT l.name, 'ATTEMPT'::reference_owner, l.id, l.attempt FROM live l
    WHERE l.name IN (SELECT table_name FROM there) ON CONFLICT DO NOTHING
)
SELECT name, id, name IN (SELECT table_name FROM there) AS held FROM live
