-- The jobs among $1 that are over hold nothing any more, also not their final results; returns them.
WITH ended AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY ($1::bigint[]) AND completed_at IS NOT NULL ORDER BY id FOR NO KEY UPDATE
),
gone AS (DELETE FROM table_references WHERE job_id = ANY (ARRAY(SELECT id FROM ended)) RETURNING table_name)
SELECT id, (SELECT count(DISTINCT table_name) FROM gone)::int AS tables FROM ended
