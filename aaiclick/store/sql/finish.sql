-- Complete leased tasks that others may be waiting for; what follows from it is told to groups, tasks and jobs next.
-- A task whose cancellation was requested is left out: it can only become CANCELLED.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::uuid[], $4::jsonb[], $5::float8[])
        AS g (id, attempt, token, result, seconds)
)
UPDATE tasks t SET status = 'COMPLETED', completed_at = coalesce($6::timestamptz, now()), lease_token = NULL,
    result = g.result, error = NULL, started_at = CASE WHEN g.seconds IS NULL THEN t.started_at
        ELSE greatest(t.claimed_at, coalesce($6::timestamptz, now()) - g.seconds * interval '1 second') END,
    error_fingerprint = NULL, updated_at = coalesce($6::timestamptz, now())
FROM given g
WHERE t.id = ANY ($1::bigint[]) AND t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
  AND num_nonnulls(t.cancel_requested_at) < 1  -- IS NULL would be taken for rare, and the join made a nested loop
RETURNING t.id, t.org_id, t.job_id, t.group_id, t.followed, t.concurrency_key, t.status::text, t.queue, t.passed_over,
    -- Not EXISTS: it may be planned as a hash of the whole table.
    CASE WHEN t.followed THEN coalesce((
        SELECT true FROM dependencies d WHERE d.previous_id = t.id AND d.next_type = 'group' LIMIT 1), false)
        ELSE false END AS gates,
    t.attempt, CASE WHEN t.followed THEN coalesce((
        SELECT true FROM task_additions a WHERE a.task_id = t.id AND a.attempt <> t.attempt LIMIT 1), false)
        ELSE false END AS stale
