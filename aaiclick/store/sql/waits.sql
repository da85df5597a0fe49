-- name: lock_event_names
-- Lock the events ($1, $2, $3: org, name, key), in one order for all callers: a wait that begins and an event that is
-- sent at the same time would not see each other.
SELECT pg_advisory_xact_lock(1633773924, k.lock) FROM (
    SELECT DISTINCT hashtext(concat_ws('/', u.org_id, u.name, u.key)) AS lock
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS u (org_id, name, key) ORDER BY lock) AS k

-- name: lock_waiting_lease
-- Lock the task of a lease that begins to wait; with the deadline that an earlier wait of it has set.
SELECT org_id, job_id, type = 'wait_for_turn' AS is_turn,
    CASE WHEN type = 'wait_for_turn' AND kwargs ->> 'job_id' ~ '^([0-9]{1,18}|[1-8][0-9]{18})$' THEN (kwargs ->> 'job_id')::bigint END AS turn_after, cancel_requested_at IS NOT NULL AS cancelled,
    coalesce((kwargs -> 'aaiclick_wait' ->> 'deadline')::timestamptz <= coalesce($4::timestamptz, now()), false) AS expired
FROM tasks WHERE id = $1 AND attempt = $2 AND lease_token = $3 FOR NO KEY UPDATE

-- name: suspend_task
-- End the lease of the task $1 and schedule it: at the time $4, or after $5 seconds, but not after its deadline, which the
-- first wait sets $6 seconds ahead. Arguments record that it waits.
UPDATE tasks t SET status = 'PENDING', readiness = 'TIME', lease_token = NULL, error = NULL, error_fingerprint = NULL,
    available_at = coalesce($4::timestamptz, least(coalesce($7::timestamptz, now()) + $5::float8 * interval '1 second', w.deadline)),
    kwargs = t.kwargs || jsonb_build_object('aaiclick_wait', jsonb_build_object('deadline', w.deadline)),
    updated_at = coalesce($7::timestamptz, now())
FROM (
    SELECT coalesce((o.kwargs -> 'aaiclick_wait' ->> 'deadline')::timestamptz,
        coalesce($7::timestamptz, now()) + $6::float8 * interval '1 second') AS deadline
    FROM tasks o WHERE o.id = $1) AS w
WHERE t.id = $1 AND t.attempt = $2 AND t.lease_token = $3
RETURNING t.id, t.org_id, t.job_id, t.group_id, t.has_dependents, t.concurrency_key, 'WAITING' AS status, t.queue,
    t.passed_over, false AS gates, t.attempt, false AS stale

-- name: insert_wait
-- Record what the attempt $2 of the task $1 waits for.
INSERT INTO waits (task_id, org_id, attempt, wait_type, name, key, job_id, began_at)
SELECT t.id, t.org_id, $2, $3, $4, $5, $6, coalesce($7::timestamptz, now()) FROM tasks t WHERE t.id = $1
ON CONFLICT (task_id) DO UPDATE SET attempt = excluded.attempt, wait_type = excluded.wait_type, name = excluded.name,
    key = excluded.key, job_id = excluded.job_id, began_at = excluded.began_at

-- name: wake_task
-- Let the waiting task $1 go on with the outcome $2; its row is locked.
UPDATE tasks SET readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness,
    kwargs = jsonb_set(kwargs, '{aaiclick_wait}', (kwargs -> 'aaiclick_wait') || $2::jsonb), updated_at = now()
WHERE id = $1 RETURNING org_id, queue, concurrency_key AS key

-- name: count_workflow_events
-- Number of stored events of the org $1, up to $2.
SELECT count(*) FROM (SELECT FROM workflow_events WHERE org_id = $1 LIMIT $2) AS e

-- name: insert_workflow_event
INSERT INTO workflow_events (id, org_id, name, key, payload, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, coalesce($7::timestamptz, now()), coalesce($7::timestamptz, now()) + $6::float8 * interval '1 second')

-- name: find_workflow_event
-- The first event of a name and key that has not expired.
SELECT payload::text AS payload FROM workflow_events
WHERE org_id = $1 AND name = $2 AND key = $3 AND expires_at > coalesce($4::timestamptz, now()) ORDER BY id LIMIT 1

-- name: wake_event_waits
-- Let the tasks go on that wait for an event, with its payload.
WITH ended AS (
    DELETE FROM waits WHERE org_id = $1 AND name = $2 AND key = $3 AND wait_type = 'event' RETURNING task_id, attempt
),
locked AS MATERIALIZED (
    SELECT t.id FROM ended e CROSS JOIN LATERAL (
        -- As text: the partial index of scheduled tasks would be scanned as a whole.
        SELECT t.id FROM tasks t WHERE t.id = e.task_id AND t.attempt = e.attempt AND t.readiness::text = 'TIME'
        FOR NO KEY UPDATE) t
)
UPDATE tasks SET readiness = CASE WHEN concurrency_key IS NULL THEN 'READY' ELSE 'HELD' END::task_readiness,
    kwargs = jsonb_set(kwargs, '{aaiclick_wait}', (kwargs -> 'aaiclick_wait') || jsonb_build_object('event', $4::jsonb)),
    updated_at = coalesce($5::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM locked))
RETURNING id, org_id, queue, concurrency_key, readiness::text

-- name: await_job
-- Mark the job $1 of the org $2 as awaited, so that its end wakes tasks; returns whether it has ended.
UPDATE jobs SET has_waiters = true WHERE id = $1 AND org_id = $2 RETURNING completed_at IS NOT NULL AS has_ended

-- name: get_job_outcome
-- The outcome of the ended job $1. Not part of await_job, which may have waited for the transaction that ended the job:
-- its snapshot is older.
SELECT aaiclick_job_outcome($1)::text

-- name: find_awaited_turn
-- The unfinished job that a limited job waits for if its turn names $1; NULL if its turn has come.
SELECT aaiclick_find_awaited_turn($1)

-- name: delete_expired_events
DELETE FROM workflow_events WHERE id = ANY (ARRAY(
    SELECT id FROM workflow_events WHERE expires_at <= coalesce($2::timestamptz, now()) ORDER BY expires_at LIMIT $1))
