-- Count the job $1 anew from its tasks.
WITH fresh AS (
    SELECT count(*) FILTER (WHERE completed_at IS NULL) AS open,
        count(*) FILTER (WHERE completed_at IS NOT NULL AND status IN ('FAILED', 'DEAD_LETTER') AND NOT passed_over) AS failed,
        count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled
    FROM tasks WHERE job_id = $1
),
first AS (
    SELECT left(format('%s (task %s) failed in attempt %s: %s', type, id, attempt,
        split_part(regexp_replace(error, '^.*\n[ \t][^\n]*\n(?=\S)', ''), E'\n', 1)), 1000) AS cause
    FROM tasks WHERE job_id = $1 AND completed_at IS NOT NULL AND status IN ('FAILED', 'DEAD_LETTER') AND NOT passed_over
    ORDER BY completed_at, id LIMIT 1
)
UPDATE jobs j SET open_tasks = f.open, failed_tasks = f.failed, cancelled_tasks = f.cancelled,
    cancel_requested_at = CASE WHEN f.open = 0 THEN j.cancel_requested_at END,
    error = CASE WHEN f.open = 0 THEN j.error ELSE coalesce((SELECT cause FROM first), (
        SELECT format('Event %s could not be routed. See: aaiclick events ls', o.id) FROM outbox o
        WHERE o.job_id = j.id AND o.status = 'Failed' ORDER BY o.id LIMIT 1)) END,
    status = CASE WHEN f.open > 0 OR j.open_events > 0 THEN
            CASE WHEN j.started_at IS NULL THEN 'PENDING' ELSE 'RUNNING' END
        WHEN f.failed > 0 OR j.error IS NOT NULL THEN 'FAILED' WHEN f.cancelled > 0 THEN 'CANCELLED'
        ELSE 'COMPLETED' END::job_status,
    restarted_at = CASE WHEN f.open > 0 AND j.completed_at IS NOT NULL THEN coalesce($2::timestamptz, now())
        ELSE j.restarted_at END,
    completed_at = CASE WHEN f.open = 0 AND j.open_events = 0
        THEN coalesce(j.completed_at, $2::timestamptz, now()) END,
    deadline_at = CASE WHEN f.open > 0 THEN coalesce($2::timestamptz, now()) + j.timeout_seconds * interval '1 second'
        ELSE j.deadline_at END
FROM fresh f WHERE j.id = $1
RETURNING j.status::text
