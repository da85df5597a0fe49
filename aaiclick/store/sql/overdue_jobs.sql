SELECT id, name, timeout_seconds FROM jobs
WHERE completed_at IS NULL AND deadline_at <= coalesce($2::timestamptz, now()) AND cancel_requested_at IS NULL
ORDER BY deadline_at LIMIT $1
