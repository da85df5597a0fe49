-- Jobs of the org $1 older than the id $2 that failed or were cancelled (the state $3), newest first, at most $4.
SELECT id, name, status::text, created_at, started_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
FROM jobs
WHERE org_id = $1 AND status IN ('FAILED', 'CANCELLED') AND status = $3::job_status AND id < $2
ORDER BY id DESC LIMIT $4
