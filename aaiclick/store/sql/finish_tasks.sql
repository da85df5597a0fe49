-- name: finish_tasks
-- Complete leased tasks that may have dependents; the caller propagates the completion to groups, tasks and jobs. A
-- task with a cancellation request is left out: it can only become CANCELLED.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::uuid[], $4::jsonb[], $5::float8[], $6::text[])
        AS g (id, attempt, token, result, seconds, literal)
)
UPDATE tasks t SET status = 'COMPLETED', completed_at = coalesce($7::timestamptz, now()), lease_token = NULL,
    result = g.result, literal = g.literal, error = NULL, started_at = CASE WHEN g.seconds IS NULL THEN t.started_at
        ELSE greatest(t.claimed_at, coalesce($7::timestamptz, now()) - g.seconds * interval '1 second') END,
    error_fingerprint = NULL, updated_at = coalesce($7::timestamptz, now())
FROM given g
WHERE t.id = ANY ($1::bigint[]) AND t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
  AND num_nonnulls(t.cancel_requested_at) < 1  -- the planner expects few rows for IS NULL, and would choose a nested loop
RETURNING t.id, t.org_id, t.job_id, t.group_id, t.has_dependents, t.concurrency_key, t.status::text, t.queue, t.passed_over,
    -- Not EXISTS, which may be planned as a hash of the whole table.
    CASE WHEN t.has_dependents THEN coalesce((
        SELECT true FROM dependencies d WHERE d.previous_id = t.id AND d.next_type > 'task' LIMIT 1), false)
        ELSE false END AS gates,
    t.attempt, CASE WHEN t.has_dependents THEN coalesce((
        SELECT true FROM task_additions a WHERE a.task_id = t.id AND a.attempt <> t.attempt LIMIT 1), false)
        ELSE false END AS stale
