-- name: count_attempts_by_outcome
-- Attempts that did not succeed, by outcome.
SELECT outcome::text AS status, count(*) AS count FROM task_attempts GROUP BY 1

-- name: count_incidents_by_severity
-- Open incidents of all orgs.
SELECT severity, count(*) FROM incidents WHERE closed_at IS NULL GROUP BY severity

-- name: load_metric_counts
-- Counts of rows that were deleted or restarted.
SELECT kind, status, worker_id, nullif(bucket, -1) AS bucket, sum(count)::bigint AS count, sum(seconds) AS seconds
FROM metric_counts GROUP BY 1, 2, 3, 4

-- name: count_jobs_by_status
-- Jobs by status, with durations of completed ones (bucket bounds $1).
SELECT status::text, width_bucket(took, $1::float8[]) AS bucket, count(*) AS count, coalesce(sum(took), 0) AS seconds
FROM (
    SELECT status, CASE WHEN status = 'COMPLETED'
        THEN extract(epoch FROM completed_at - greatest(started_at, restarted_at))::float8 END AS took
    FROM jobs
) AS j GROUP BY 1, 2

-- name: count_tasks_by_status
-- Tasks by status and worker, with durations of completed ones (bucket bounds $1).
SELECT status::text, next_retry_at IS NOT NULL AS retried, worker_id, width_bucket(took, $1::float8[]) AS bucket,
    count(*) AS count, coalesce(sum(took), 0) AS seconds
FROM (
    SELECT status, next_retry_at, worker_id,
        CASE WHEN status = 'COMPLETED' THEN extract(epoch FROM completed_at - started_at)::float8 END AS took
    FROM tasks
) AS t GROUP BY 1, 2, 3, 4

-- name: count_ready_by_queue
-- Ready tasks by queue: queues with settings, with workers of their own, with activity in the last day, or with ready
-- tasks; the deepest first, at most $1.
WITH ready AS (SELECT queue, count(*) AS ready FROM tasks WHERE readiness = 'READY' GROUP BY queue),
known AS (
    SELECT 'default' AS queue UNION SELECT name FROM queues UNION SELECT queue FROM queue_minutes
    UNION SELECT unnest(queues) FROM workers WHERE status <> 'STOPPED'
)
SELECT queue, coalesce(r.ready, 0) AS ready FROM known FULL JOIN ready r USING (queue) ORDER BY 2 DESC, 1 LIMIT $1

-- name: list_worker_heartbeats
-- Workers that have not stopped, the age of their heartbeats, and whether it is within $1 seconds.
SELECT id, extract(epoch FROM now() - last_heartbeat)::float8 AS age,
    last_heartbeat > now() - $1::float8 * interval '1 second' AS active
FROM workers WHERE status <> 'STOPPED' ORDER BY id

-- name: allow_sequential_scans
-- Allow sequential scans in this transaction: metrics read whole tables.
SET LOCAL enable_seqscan = on

-- name: load_health_counts
-- Workers with a heartbeat within the last $2 seconds, those without one that have not stopped, tasks with a lease that expired more
-- than $1 seconds ago and were not recovered, and events that could not be routed (counted up to 1,000).
SELECT (SELECT count(*) FROM workers
        WHERE status <> 'STOPPED' AND last_heartbeat > now() - $2::float8 * interval '1 second') AS workers,
    (SELECT count(*) FROM workers
        WHERE status <> 'STOPPED' AND last_heartbeat <= now() - $2::float8 * interval '1 second') AS silent,
    (SELECT count(*) FROM tasks WHERE status IN ('CLAIMED', 'RUNNING')
        AND lease_expires_at < now() - make_interval(secs => $1::float8)) AS stale,
    (SELECT count(*) FROM (SELECT FROM outbox WHERE status = 'Failed' LIMIT 1000) AS failed) AS unrouted
