-- Tasks of the job $1 as a drawing needs them, at most $2.
SELECT id, group_id, type, status::text, next_retry_at IS NOT NULL AS retrying, created_at, started_at, completed_at
FROM tasks WHERE job_id = $1 ORDER BY id LIMIT $2
