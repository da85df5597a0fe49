-- The attempts $1, $2 have succeeded, in this transaction: the tables $4 within the results of the tasks $3 are held by
-- them, everything else of the attempts is released. Returns what cannot be held: tables that nothing refers to, not even
-- the attempt or whoever gave it its arguments, and those of another org.
WITH ended AS (
    DELETE FROM table_references r USING unnest($1::bigint[], $2::int[]) AS g (id, attempt)
    WHERE r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt
),
results AS MATERIALIZED (
    SELECT DISTINCT g.id, g.name, t.job_id, t.org_id FROM unnest($3::bigint[], $4::text[]) AS g (id, name)
    CROSS JOIN LATERAL (SELECT t.job_id, t.org_id FROM tasks t WHERE t.id = g.id OFFSET 0) AS t
),
there AS MATERIALIZED (
    SELECT table_name, org_id FROM table_refcounts WHERE table_name = ANY ($4::text[]) AND refcount > 0
      AND dropping_at IS NULL ORDER BY table_name FOR NO KEY UPDATE
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, job_id)
    SELECT name, 'RESULT', id, job_id FROM results WHERE (name, org_id) IN (SELECT table_name, org_id FROM there)
    ORDER BY name ON CONFLICT DO NOTHING
)
SELECT id, name FROM results WHERE (name, org_id) NOT IN (SELECT table_name, org_id FROM there) ORDER BY id, name
