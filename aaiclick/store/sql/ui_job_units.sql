-- Tasks of the job $1 by group and type.
SELECT group_id, type, count(*) AS total, min(id) AS first_id,
    count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
    count(*) FILTER (WHERE status IN ('CLAIMED', 'RUNNING')) AS running,
    count(*) FILTER (WHERE status = 'FAILED' AND next_retry_at IS NULL) AS failed,
    count(*) FILTER (WHERE next_retry_at IS NOT NULL) AS retrying,
    count(*) FILTER (WHERE status = 'DEAD_LETTER') AS dead,
    count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled,
    count(*) FILTER (WHERE status = 'PENDING') AS pending,
    min(created_at) AS created_at, min(started_at) AS started_at,
    CASE WHEN bool_or(completed_at IS NULL) THEN NULL ELSE max(completed_at) END AS completed_at
FROM tasks WHERE job_id = $1 GROUP BY group_id, type
