-- Attempts want to read tables that others made. A table whose drop has begun, or that nobody knows, is not held; the
-- row lock decides between this and the mark of a drop. A table of another org does not exist.
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::uuid[]) AS g (name, id, attempt, token)
),
live AS MATERIALIZED (
    SELECT g.name, g.id, g.attempt, t.org_id FROM given g CROSS JOIN LATERAL (
        SELECT t.org_id FROM tasks t WHERE t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token FOR SHARE) t
),
there AS MATERIALIZED (
    SELECT table_name, org_id FROM table_refcounts WHERE table_name = ANY (ARRAY(SELECT name FROM live))
      AND dropping_at IS NULL ORDER BY table_name FOR NO KEY UPDATE
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, attempt)
    SELECT DISTINCT l.name, 'ATTEMPT'::reference_owner, l.id, l.attempt FROM live l
    WHERE (l.name, l.org_id) IN (SELECT table_name, org_id FROM there) ON CONFLICT DO NOTHING
)
SELECT name, id, (name, org_id) IN (SELECT table_name, org_id FROM there) AS held FROM live
