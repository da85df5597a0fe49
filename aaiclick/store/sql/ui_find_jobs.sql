-- Jobs of the org $1 older than the id $2, newest first: of the next $3, those with status $4 and a name like $5, at most $6.
SELECT * FROM (
    SELECT id, name, status::text, created_at, started_at, restarted_at, completed_at, paused_at, cancel_requested_at, total_tasks, open_tasks, failed_tasks, cancelled_tasks, error
    FROM jobs WHERE org_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3
) AS j WHERE ($4::text IS NULL OR status = $4) AND ($5::text IS NULL OR name ILIKE $5) ORDER BY id DESC LIMIT $6
