-- The tasks $2 are given the tables $1 as arguments: their job $3 holds them, or each task by itself if it has none.
-- Returns the tables that cannot be held: nobody of the org $4 knows them, or they are being dropped.
WITH given AS (
    SELECT DISTINCT g.name, coalesce($3::bigint, g.id) AS owner_id
    FROM unnest($1::text[], $2::bigint[]) AS g (name, id)
),
there AS MATERIALIZED (
    SELECT table_name FROM table_refcounts WHERE table_name = ANY ($1::text[]) AND dropping_at IS NULL
      AND org_id = $4
    ORDER BY table_name FOR NO KEY UPDATE
),
held AS (
    INSERT INTO table_references (table_name, owner, owner_id, job_id)
    SELECT g.name, CASE WHEN $3::bigint IS NULL THEN 'TASK' ELSE 'JOB' END::reference_owner, g.owner_id, $3
    FROM given g WHERE g.name IN (SELECT table_name FROM there) ON CONFLICT DO NOTHING
)
SELECT DISTINCT name FROM given WHERE name NOT IN (SELECT table_name FROM there) ORDER BY name
