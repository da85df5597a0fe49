-- The job of the event $1, which has failed, has one event fewer to wait for and ends FAILED. The error names no
-- data: readers of the job need not be allowed to read the dataset.
UPDATE jobs j SET open_events = j.open_events - 1, started_at = coalesce(j.started_at, now()), updated_at = now(),
    error = CASE WHEN j.cancel_requested_at IS NULL THEN coalesce(j.error, e.cause) ELSE j.error END,
    status = CASE
        WHEN j.open_tasks > 0 OR j.open_events > 1 THEN 'RUNNING'
        WHEN j.failed_tasks > 0 OR j.error IS NOT NULL OR j.cancel_requested_at IS NULL THEN 'FAILED'
        ELSE 'CANCELLED' END::job_status,
    completed_at = CASE WHEN j.open_tasks = 0 AND j.open_events = 1 THEN coalesce($2::timestamptz, now()) END
FROM (
    SELECT o.job_id, format('Event %s could not be routed. See: aaiclick events ls', o.id) AS cause
    FROM outbox o WHERE o.id = $1 AND o.status = 'Failed') AS e
WHERE j.id = e.job_id
