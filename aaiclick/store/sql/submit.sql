-- name: insert_job
-- Insert a job of $5 tasks, due after $15 seconds; no row if its name and idempotency key exist.
INSERT INTO jobs (id, org_id, name, timeout_seconds, total_tasks, open_tasks, idempotency_key, definition_id,
    dag_version_id, trigger, schedule_id, tags, concurrency, parent_job_id, parent_task_id, due_at, policy)
VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, now() + $15::float8 * interval '1 second', $16)
ON CONFLICT (org_id, name, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id

-- name: find_job_by_key
-- The job with an idempotency key.
SELECT id FROM jobs WHERE org_id = $1 AND name = $2 AND idempotency_key = $3

-- name: lock_job_name
-- Serialise submits of limited jobs of the org $1 with the name $2.
SELECT pg_advisory_xact_lock(hashtextextended('job:' || $1::uuid || ':' || $2, 0))

-- name: list_limited_jobs
-- Unfinished jobs of the org $1 with the name $2 that have a limit, oldest first: the unfinished job that each waits for,
-- whether it has not begun, and whether it is being cancelled. A turn that was cancelled counts too, since it may be
-- restarted. A scalar subquery and not a join: that could be hashed, which reads all tasks.
SELECT j.id, aaiclick_find_awaited_turn((
        SELECT CASE WHEN t.kwargs ->> 'job_id' ~ '^([0-9]{1,18}|[1-8][0-9]{18})$' THEN (t.kwargs ->> 'job_id')::bigint END FROM tasks t
        WHERE t.job_id = j.id AND t.type = 'wait_for_turn' AND t.status <> 'COMPLETED' AND t.kwargs ->> 'job_id' IS NOT NULL LIMIT 1)) AS awaited_id,
    coalesce((SELECT true FROM tasks t
        WHERE t.job_id = j.id AND t.type = 'wait_for_turn' AND t.completed_at IS NULL LIMIT 1), false) AS waiting,
    j.cancel_requested_at IS NOT NULL AS cancelled
FROM jobs j
WHERE j.org_id = $1 AND j.name = $2 AND j.completed_at IS NULL AND j.concurrency IS NOT NULL ORDER BY j.id

-- name: lock_name_of_limited_job
-- Serialise submits and restarts of jobs with the name of the job $1, if it has a limit.
SELECT pg_advisory_xact_lock(hashtextextended('job:' || org_id || ':' || name, 0))
FROM jobs WHERE id = $1 AND concurrency IS NOT NULL

-- name: get_job_limit
-- The limit of the job $1, and whether it has ended.
SELECT org_id, name, concurrency, completed_at IS NOT NULL AS ended FROM jobs WHERE id = $1

-- name: settle_turns
-- Let the turns of unfinished jobs of the org $1 with the name $2 name the unfinished job that they wait for, or none: the
-- ended job that they name, or one before it, is about to be restarted.
WITH settled AS MATERIALIZED (
    SELECT t.id, aaiclick_find_awaited_turn(
        CASE WHEN t.kwargs ->> 'job_id' ~ '^([0-9]{1,18}|[1-8][0-9]{18})$' THEN (t.kwargs ->> 'job_id')::bigint END)::text AS awaited_id
    FROM jobs j CROSS JOIN LATERAL (
        SELECT o.id, o.kwargs FROM tasks o WHERE o.job_id = j.id AND o.type = 'wait_for_turn' AND o.status <> 'COMPLETED'
          AND o.kwargs ->> 'job_id' IS NOT NULL LIMIT 1) t
    WHERE j.org_id = $1 AND j.name = $2 AND j.completed_at IS NULL AND j.concurrency IS NOT NULL
)
UPDATE tasks t SET kwargs = t.kwargs || jsonb_build_object('job_id', s.awaited_id), updated_at = now()
FROM settled s
WHERE t.id = s.id AND t.id = ANY (ARRAY(SELECT id FROM settled)) AND t.kwargs ->> 'job_id' IS DISTINCT FROM s.awaited_id

-- name: discard_turns
-- Let turns of the job $1 that are restarted wait for no job: all of an ended job ($2), else those that have come.
UPDATE tasks SET kwargs = kwargs || '{"job_id": null}', updated_at = now()
WHERE job_id = $1 AND type = 'wait_for_turn' AND ($2::boolean OR status = 'COMPLETED') AND kwargs ->> 'job_id' IS NOT NULL

-- name: insert_turn
-- Insert the task $3 (type $4, entrypoint $5, arguments $6) of the ended job $1 of the org $2, as a predecessor of the ended tasks $7. The
-- caller recounts the job.
WITH turn AS (
    INSERT INTO tasks (id, org_id, job_id, type, entrypoint, kwargs, has_dependents)
    SELECT $3::bigint, $2::uuid, $1::bigint, $4::text, $5::text, $6::jsonb, true RETURNING id
),
gated AS (
    UPDATE tasks t SET unmet = t.unmet + 1, updated_at = now() WHERE t.job_id = $1 AND t.id = ANY ($7::bigint[]) AND t.completed_at IS NOT NULL
    RETURNING t.id, t.trigger_rule
),
edges AS (
    INSERT INTO dependencies (previous_id, next_id, previous_type, next_type)
    SELECT turn.id, gated.id, 'task', (CASE WHEN gated.trigger_rule IN ('failed', 'ended') THEN 'handler' ELSE 'task' END)::node_type
    FROM turn, gated
)
UPDATE jobs SET total_tasks = total_tasks + 1 WHERE id = $1

-- name: get_job_head
-- Name, org and state of the job $1.
SELECT org_id, name, status::text, completed_at IS NOT NULL AS ended, cancel_requested_at IS NOT NULL AS cancelled
FROM jobs WHERE id = $1

-- name: enqueue_tasks
-- Insert tasks without a job and notify the workers of their queues; tasks with an existing idempotency key are
-- skipped.
WITH put AS (
    INSERT INTO tasks (id, org_id, type, entrypoint, kwargs, idempotency_key, {task_options.*}, readiness)
    SELECT id, $1, type, entrypoint, kwargs, idempotency_key, {task_options.*},
        CASE WHEN available_at IS NOT NULL THEN 'TIME' WHEN concurrency_key IS NOT NULL THEN 'HELD'
             ELSE 'READY' END::task_readiness
    FROM unnest($2::bigint[], $3::text[], $4::text[], $5::jsonb[], $6::text[], {task_options.$7[]})
        AS u (id, type, entrypoint, kwargs, idempotency_key, {task_options.*})
    ON CONFLICT (org_id, type, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, queue, readiness
),
told AS (
    SELECT pg_notify('aaiclick_ready', queue) FROM (SELECT DISTINCT queue FROM put WHERE readiness = 'READY') AS queues
)
SELECT id, (SELECT count(*) FROM told) FROM put

-- name: debounce_task
-- Insert an item that waits, or give its payload to the item that already waits under its key: as a whole, or merged
-- if $7 is set. That item then waits until the start time of this one, but not longer than $8 seconds since it was
-- created; one that is ready stays ready. No row if the item under the key has been claimed or has ended.
INSERT INTO tasks AS t (id, org_id, type, entrypoint, kwargs, idempotency_key, {task_options.*}, readiness)
SELECT $1::bigint, $2::uuid, $3::text, $4::text, $5::jsonb, $6::text, {task_options.$9}, 'TIME'
ON CONFLICT (org_id, type, idempotency_key) WHERE idempotency_key IS NOT NULL DO UPDATE
SET kwargs = CASE WHEN $7::boolean THEN t.kwargs || EXCLUDED.kwargs ELSE EXCLUDED.kwargs END, updated_at = now(),
    available_at = CASE WHEN t.readiness = 'TIME'
        THEN least(EXCLUDED.available_at, t.created_at + $8::float8 * interval '1 second') ELSE t.available_at END
WHERE t.attempt = 0 AND t.readiness IS NOT NULL
RETURNING id

-- name: release_debounce_key
-- Take the key $3 from the item of type $2 that has been claimed or has ended.
UPDATE tasks SET idempotency_key = NULL, updated_at = now()
WHERE org_id = $1 AND type = $2 AND idempotency_key = $3 AND (attempt > 0 OR readiness IS NULL)

-- name: find_tasks_by_keys
-- Tasks with the types $2 and idempotency keys $3 of the org $1.
SELECT u.nth, t.id FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (type, key, nth)
JOIN tasks t ON t.org_id = $1 AND t.type = u.type AND t.idempotency_key = u.key

-- name: list_submitted_groups
-- Groups that the job $1 was submitted with, at most $2.
SELECT id, name, parent_group_id FROM groups WHERE job_id = $1 AND added_by IS NULL ORDER BY id LIMIT $2

-- name: list_submitted_tasks
-- Tasks that the job $1 was submitted with, at most $2.
SELECT id, type, entrypoint, kwargs, group_id, {task_options.*}
FROM tasks WHERE job_id = $1 AND added_by IS NULL ORDER BY id LIMIT $2
