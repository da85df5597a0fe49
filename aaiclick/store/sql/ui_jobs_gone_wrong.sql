-- Jobs of the org $1 older than the id $2 that failed or were cancelled (the state $3), newest first, at most $4. The state is a
-- range and a part of the order, so that no other index has it: by id, PostgreSQL would pass all that went well.
SELECT id, name, status::text, created_at, started_at, restarted_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
FROM jobs
WHERE org_id = $1 AND status IN ('FAILED', 'CANCELLED') AND status >= $3::job_status AND status <= $3::job_status AND id < $2
ORDER BY jobs.status DESC, jobs.id DESC LIMIT $4
