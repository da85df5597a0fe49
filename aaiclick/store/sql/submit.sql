-- name: insert_job
-- Insert a job of $5 tasks; no row if its name and idempotency key exist.
INSERT INTO jobs (id, org_id, name, timeout_seconds, total_tasks, open_tasks, idempotency_key, definition_id,
    dag_version_id, trigger, schedule_id)
VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8, $9, $10)
ON CONFLICT (org_id, name, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id

-- name: find_job_by_key
-- The job with an idempotency key.
SELECT id FROM jobs WHERE org_id = $1 AND name = $2 AND idempotency_key = $3

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
