-- name: complete_tasks
-- Fast path: complete tasks without dependents, group and concurrency key together with their jobs' counters. Other
-- tasks are left to `finish_tasks`; so is a task that gets a dependent concurrently, which changes its row, and one
-- with a cancellation request.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::uuid[], $4::jsonb[], $5::float8[], $6::text[])
        AS g (id, attempt, token, result, seconds, literal)
),
done AS (
    UPDATE tasks t SET status = 'COMPLETED', completed_at = coalesce($7::timestamptz, now()), lease_token = NULL,
        result = g.result, literal = g.literal, error = NULL, started_at = CASE WHEN g.seconds IS NULL THEN t.started_at
            ELSE greatest(t.claimed_at, coalesce($7::timestamptz, now()) - g.seconds * interval '1 second') END,
        error_fingerprint = NULL, updated_at = coalesce($7::timestamptz, now())
    FROM given g
    WHERE t.id = ANY ($1::bigint[]) AND t.id = g.id AND t.attempt = g.attempt AND t.lease_token = g.token
      AND NOT t.has_dependents AND num_nonnulls(t.group_id, t.concurrency_key, t.cancel_requested_at) < 1
    RETURNING t.id, t.job_id
),
tally AS MATERIALIZED (SELECT job_id, count(*)::int AS tasks FROM done WHERE job_id IS NOT NULL GROUP BY job_id),
locked AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY (ARRAY(SELECT job_id FROM tally)) ORDER BY id FOR NO KEY UPDATE
),
settled AS (
    UPDATE jobs j SET open_tasks = j.open_tasks - n.tasks, started_at = coalesce(j.started_at, now()),
        status = CASE
            WHEN j.open_tasks > n.tasks OR j.open_events > 0 THEN 'RUNNING'
            WHEN j.failed_tasks > 0 OR j.error IS NOT NULL THEN 'FAILED'
            WHEN j.cancelled_tasks > 0 THEN 'CANCELLED'
            ELSE 'COMPLETED' END::job_status,
        completed_at = CASE WHEN j.open_tasks = n.tasks AND j.open_events = 0
            THEN coalesce($7::timestamptz, now()) END,
        updated_at = coalesce($7::timestamptz, now())
    FROM tally n WHERE j.id = n.job_id AND j.id = ANY (ARRAY(SELECT id FROM locked))
)
SELECT id FROM done
