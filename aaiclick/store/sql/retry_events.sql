-- The failed events $1 are Pending again, with all their attempts, and their jobs wait for them.
WITH again AS (
    UPDATE outbox SET status = 'Pending', attempts = 0, processed_at = NULL, available_at = now()
    WHERE id = ANY ($1::bigint[]) AND status = 'Failed' RETURNING job_id
),
counted AS (SELECT job_id, count(*)::int AS events FROM again GROUP BY job_id),
reopened AS (
    UPDATE jobs j SET open_events = j.open_events + c.events, status = 'RUNNING', updated_at = now(),
        error = CASE WHEN j.error LIKE 'Event % could not be routed.%' THEN (
            SELECT format('Event %s could not be routed. See: aaiclick events ls', o.id) FROM outbox o
            WHERE o.job_id = j.id AND o.status = 'Failed' AND o.id <> ALL ($1::bigint[]) ORDER BY o.id LIMIT 1) ELSE j.error END,
        restarted_at = CASE WHEN j.completed_at IS NOT NULL THEN now() ELSE j.restarted_at END,
        completed_at = NULL, deadline_at = now() + j.timeout_seconds * interval '1 second'
    FROM counted c WHERE j.id = c.job_id
)
SELECT pg_notify('aaiclick_events', '')
