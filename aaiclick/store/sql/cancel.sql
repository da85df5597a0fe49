-- name: cancel_groups
-- Mark the groups of a cancelled job as failed.
UPDATE groups SET failed_at = coalesce($2::timestamptz, now()), cause_id = $1
WHERE job_id = $1 AND num_nonnulls(completed_at, failed_at, skipped_at) = 0

-- name: request_task_cancellation
-- Request the cancellation of leased tasks, of the job $1 (handlers and what they added only if $4) or among the tasks
-- $2, and notify their workers. From then on each of them can only become CANCELLED, whatever its worker reports.
WITH RECURSIVE kept (id) AS (
    SELECT id FROM tasks WHERE job_id = $1 AND trigger_rule IN ('failed', 'ended') AND NOT $4
    UNION
    SELECT added.id FROM kept k CROSS JOIN LATERAL (
        SELECT a.tasks FROM task_additions a WHERE a.task_id = k.id OFFSET 0) a CROSS JOIN LATERAL unnest(a.tasks) AS added (id)
)
UPDATE tasks SET cancel_requested_at = coalesce(cancel_requested_at, $3::timestamptz, now()), updated_at = coalesce($3::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM tasks WHERE job_id = $1 AND completed_at IS NULL
    AND id NOT IN (SELECT id FROM kept) ORDER BY id) || $2::bigint[])
  AND status IN ('CLAIMED', 'RUNNING')
RETURNING id, pg_notify('aaiclick_cancel', coalesce($1::text, id::text))

-- name: cancel_waiting_tasks
-- Cancel waiting tasks, of the job $1 (handlers and what they added only if $4) or among the tasks $2.
WITH RECURSIVE kept (id) AS (
    SELECT id FROM tasks WHERE job_id = $1 AND trigger_rule IN ('failed', 'ended') AND NOT $4
    UNION
    SELECT added.id FROM kept k CROSS JOIN LATERAL (
        SELECT a.tasks FROM task_additions a WHERE a.task_id = k.id OFFSET 0) a CROSS JOIN LATERAL unnest(a.tasks) AS added (id)
)
UPDATE tasks SET status = 'CANCELLED', readiness = NULL, next_retry_at = NULL,
    completed_at = coalesce($3::timestamptz, now()), cancel_requested_at = coalesce($3::timestamptz, now()),
    updated_at = coalesce($3::timestamptz, now())
WHERE id = ANY (ARRAY(SELECT id FROM tasks WHERE job_id = $1 AND completed_at IS NULL
    AND id NOT IN (SELECT id FROM kept) ORDER BY id) || $2::bigint[])
  AND readiness IS NOT NULL
RETURNING id, org_id, job_id, group_id, has_dependents, concurrency_key, status::text, queue, passed_over

-- name: request_job_cancellation
-- Request the end of the job $1; $2 is the error if that is a failure.
UPDATE jobs SET cancel_requested_at = coalesce($3::timestamptz, now()), error = coalesce($2, error)
WHERE id = $1 AND completed_at IS NULL RETURNING open_tasks, id

-- name: list_jobs_of_tasks
-- Distinct jobs of the tasks $1, by id.
SELECT DISTINCT job_id FROM tasks WHERE id = ANY ($1::bigint[]) AND job_id IS NOT NULL ORDER BY job_id

-- name: list_overdue_jobs
-- Jobs past their deadline.
SELECT id, name, timeout_seconds FROM jobs
WHERE completed_at IS NULL AND deadline_at <= coalesce($2::timestamptz, now()) AND cancel_requested_at IS NULL
ORDER BY deadline_at LIMIT $1
