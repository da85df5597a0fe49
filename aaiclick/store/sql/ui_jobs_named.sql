-- Jobs of the org $1 named $2, older than the id $3, newest first; with status $4, at most $5.
SELECT id, name, status::text, created_at, started_at, restarted_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
FROM jobs WHERE org_id = $1 AND name = $2 AND id < $3 AND ($4::text IS NULL OR status = $4::job_status)
ORDER BY id DESC LIMIT $5
