-- The same as ui_job_units, of the first and the last $2 tasks of the job $1 alone.
WITH ends AS (
    (SELECT id, group_id, type, status, next_retry_at, created_at, started_at, completed_at FROM tasks
     WHERE job_id = $1 ORDER BY id LIMIT $2)
    UNION
    (SELECT id, group_id, type, status, next_retry_at, created_at, started_at, completed_at FROM tasks
     WHERE job_id = $1 ORDER BY id DESC LIMIT $2)
)
SELECT group_id, type, status::text, next_retry_at IS NOT NULL AS retrying, count(*) AS count, min(id) AS first_id,
    min(created_at) AS created_at, min(started_at) AS started_at, max(completed_at) AS completed_at
FROM ends GROUP BY group_id, type, status, next_retry_at IS NOT NULL
