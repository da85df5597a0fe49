-- Tasks of the job $1 by group, type and where they are.
SELECT group_id, type, status::text, next_retry_at IS NOT NULL AS retrying, count(*) AS count, min(id) AS first_id,
    min(created_at) AS created_at, min(started_at) AS started_at, max(completed_at) AS completed_at
FROM tasks WHERE job_id = $1 GROUP BY group_id, type, status, next_retry_at IS NOT NULL
