-- Tasks that the job $1 was submitted with, at most $2.
SELECT id, type, entrypoint, kwargs, group_id, queue, priority, max_attempts, timeout_seconds, retry_policy,
    concurrency_key, concurrency_limit, critical
FROM tasks WHERE job_id = $1 AND added_by IS NULL ORDER BY id LIMIT $2
