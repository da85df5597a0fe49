-- Delete up to $2 tasks without a job that ended before $1 seconds ago, with the tables they hold; dead letters stay
-- until they are redriven or discarded. Returns how many they were.
WITH old AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE job_id IS NULL AND status <> 'DEAD_LETTER'
      AND completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
),
released AS (
    DELETE FROM table_references WHERE owner_id = ANY (ARRAY(SELECT id FROM old)) AND owner IN ('RESULT', 'TASK')
),
gone AS (DELETE FROM tasks WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING 1)
SELECT count(*) FROM gone
