-- Delete up to $2 tasks without a job that ended before $1 seconds ago; dead letters stay until somebody decides.
WITH old AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE job_id IS NULL AND status <> 'DEAD_LETTER'
      AND completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM tasks WHERE id = ANY (ARRAY(SELECT id FROM old))
