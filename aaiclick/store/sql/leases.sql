-- name: lock_lease
-- Lock a valid lease until the end of the transaction; no row: it is lost. The commit must be durable: if PostgreSQL
-- crashed before the completion, the attempt would complete without additions that it believes stored.
SELECT job_id, coalesce(depth, 0) AS depth, (trigger_rule IN ('failed', 'ended')) IS TRUE AS is_handler,
    cancel_requested_at IS NOT NULL AS cancelled, queue FROM tasks
WHERE id = $1 AND attempt = $2 AND lease_token = $3 FOR NO KEY UPDATE

-- name: lock_emitting_lease
-- Lock a valid lease until the end of the transaction; no row: it is lost.
SELECT id, org_id, job_id FROM tasks WHERE id = $1 AND attempt = $2 AND lease_token = $3 FOR NO KEY UPDATE

-- name: find_job_of_lease
-- The job of the task $1 of the org $4, if its attempt $2 holds the lease $3; no row otherwise.
SELECT job_id FROM tasks WHERE id = $1 AND attempt = $2 AND lease_token = $3 AND org_id = $4

-- name: list_held_leases
-- Leases of the worker $1, with cancellation requests and age.
SELECT id, attempt, lease_token, cancel_requested_at IS NOT NULL AS cancelled,
    extract(epoch FROM clock_timestamp() - claimed_at)::float8 AS age_seconds
FROM tasks WHERE worker_id = $1 AND status IN ('CLAIMED', 'RUNNING')

-- name: list_worker_leases
-- Leases of the worker $1.
SELECT id, attempt, lease_token FROM tasks WHERE worker_id = $1 AND status IN ('CLAIMED', 'RUNNING')

-- name: filter_leases_by_org
-- Those of the tasks $1 that belong to the org $3, and whether their attempts $2 hold tables.
SELECT g.id, EXISTS (
    SELECT FROM table_references r WHERE r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt) AS holds
FROM unnest($1::bigint[], $2::int[]) AS g (id, attempt)
CROSS JOIN LATERAL (SELECT FROM tasks t WHERE t.id = g.id AND t.org_id = $3 OFFSET 0) AS t

-- name: find_overdue_tasks
-- Leased tasks of the workers $1 that should have ended $2 seconds ago: cancelled, or past their timeout ($3 seconds by
-- default).
SELECT id, attempt, lease_token, worker_id, cancel_requested_at IS NOT NULL AS cancelled,
    coalesce(timeout_seconds, $3::float8) AS timeout_seconds, failures, retry_policy
FROM tasks
WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
  AND least(cancel_requested_at,
            coalesce(started_at, claimed_at) + coalesce(timeout_seconds, $3::float8) * interval '1 second')
      < now() - $2::float8 * interval '1 second'

-- name: list_expired_leases
-- Expired leases of all workers. Reads all leased tasks: there are at most as many as workers have slots.
SELECT id, attempt, lease_token, failures, retry_policy, worker_id, job_id FROM tasks
WHERE status IN ('CLAIMED', 'RUNNING') AND lease_expires_at <= coalesce($2::timestamptz, now())
LIMIT $1

-- name: expire_leases
-- Expire all leases of the dead workers $1. Locked rows are skipped: they are being ended, or expire later.
WITH held AS MATERIALIZED (
    SELECT id FROM tasks WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
      AND lease_expires_at > coalesce($2::timestamptz, now())
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET lease_expires_at = coalesce($2::timestamptz, now()), updated_at = coalesce($2::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM held))

-- name: extend_worker_leases
-- Heartbeat of the supervisor of the workers $1: extend all their leases by $2 seconds, or the task's own duration.
-- Locked rows are being ended and are skipped. A worker with a leased task is ACTIVE, others are IDLE, also after they
-- were declared dead; one that has deregistered stays STOPPED, even if this arrives later.
WITH beat AS (
    UPDATE workers SET last_heartbeat = now(), stopped_at = NULL,
        status = CASE WHEN EXISTS (
            SELECT FROM tasks t WHERE t.worker_id = workers.id AND t.status IN ('CLAIMED', 'RUNNING'))
            THEN 'ACTIVE'::worker_status ELSE 'IDLE' END
    WHERE id = ANY ($1::bigint[])
      AND (status <> 'STOPPED' OR stopped_at > last_heartbeat + $2::float8 / 2 * interval '1 second')
),
held AS MATERIALIZED (
    SELECT id FROM tasks WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET lease_expires_at = now() + coalesce(lease_seconds, $2::float8) * interval '1 second', last_heartbeat = now(), updated_at = now()
WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status IN ('CLAIMED', 'RUNNING')

-- name: renew_task_leases
-- Renew leases with a duration set by the task, of the workers $1, after a third of it. Locked rows are being ended and
-- are skipped.
WITH due AS MATERIALIZED (
    SELECT id FROM tasks WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
      AND lease_expires_at < now() + lease_seconds * interval '1 second' * 2 / 3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET lease_expires_at = now() + lease_seconds * interval '1 second', last_heartbeat = now(), updated_at = now()
WHERE id = ANY (ARRAY(SELECT id FROM due)) AND status IN ('CLAIMED', 'RUNNING')

-- name: rebase_heartbeats
-- Reset heartbeats in the future, after PostgreSQL's clock was set back, to now, and keep the duration of their leases:
-- the lease of a dead worker expires at most one lease later. A transaction that began a moment after this one is not
-- in the future, hence the second. Rate keys with claims in the future are due now.
WITH heard AS (
    UPDATE workers SET last_heartbeat = coalesce($1::timestamptz, now())
    WHERE status <> 'STOPPED' AND last_heartbeat > coalesce($1::timestamptz, now()) + interval '1 second'
),
rated AS (
    UPDATE rate_limits SET next_at = coalesce($1::timestamptz, now())
    WHERE next_at IS NOT NULL AND charged_at > coalesce($1::timestamptz, now()) + interval '10 seconds'
),
ahead AS MATERIALIZED (
    SELECT id FROM tasks WHERE status IN ('CLAIMED', 'RUNNING')
      AND last_heartbeat > coalesce($1::timestamptz, now()) + interval '1 second'
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks SET lease_expires_at = coalesce($1::timestamptz, now()) + (lease_expires_at - last_heartbeat),
    last_heartbeat = coalesce($1::timestamptz, now()), updated_at = coalesce($1::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM ahead)) AND status IN ('CLAIMED', 'RUNNING')
RETURNING id

-- name: find_exhausted_releases
-- Those of the tasks $1 that were running and were released $2 times in a row over more than $3 seconds: they would be
-- released for ever. Also tasks without retries that have begun, unless they are repeatable: they would run twice.
SELECT t.id FROM tasks t CROSS JOIN LATERAL (
    SELECT count(*) AS times, min(a.ended_at) AS since FROM task_attempts a
    WHERE a.task_id = t.id AND a.started_at IS NOT NULL
      AND a.ended_at > coalesce($4::timestamptz, now()) - 2 * $3::float8 * interval '1 second'
      AND a.attempt > coalesce((SELECT max(c.attempt) FROM task_attempts c WHERE c.task_id = t.id AND c.charged), 0)) r
WHERE t.id = ANY ($1::bigint[]) AND t.started_at IS NOT NULL AND (
    (t.max_attempts = 1 AND NOT t.repeatable AND t.cancel_requested_at IS NULL) OR (r.times >= $2::int
      AND r.since <= coalesce($4::timestamptz, now()) - $3::float8 * interval '1 second'))
