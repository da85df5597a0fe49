-- Jobs of the org $1 older than the id $2 that have not ended, newest first; with status $3 and a name like $4, at most $5.
SELECT id, name, status::text, created_at, started_at, restarted_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
FROM jobs
WHERE org_id = $1 AND completed_at IS NULL AND id < $2 AND ($3::text IS NULL OR status = $3::job_status)
  AND ($4::text IS NULL OR name ILIKE $4)
ORDER BY id DESC LIMIT $5
