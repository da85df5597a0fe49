SELECT id, job_id, type, status::text, next_retry_at, attempt, claimed_at, started_at, lease_expires_at
FROM tasks WHERE worker_id = $1 AND status IN ('CLAIMED', 'RUNNING') ORDER BY id LIMIT $2
