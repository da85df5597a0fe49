-- The tasks $1 start over whatever became of them; whoever is at work on one loses its lease. Counters and readiness
-- follow by a recount.
WITH was AS MATERIALIZED (
    SELECT id, attempt, worker_id, claimed_at, started_at, lease_token, status::text AS status FROM tasks
    WHERE id = ANY ($1::bigint[]) ORDER BY id FOR NO KEY UPDATE
),
history AS (
    INSERT INTO task_attempts (task_id, attempt, charged, outcome, worker_id, claimed_at, started_at, ended_at, error)
    SELECT id, attempt, false, 'RELEASED', worker_id, claimed_at, started_at, coalesce($2::timestamptz, now()),
        'Cleared while it ran.' FROM was WHERE lease_token IS NOT NULL
)
UPDATE tasks t SET status = 'PENDING', readiness = 'BLOCKED', failures = 0, completed_at = NULL, cause_id = NULL,
    passed_over = false, cancel_requested_at = NULL, next_retry_at = NULL, lease_token = NULL, result = NULL, available_at = NULL,
    updated_at = coalesce($2::timestamptz, now())
WHERE t.id = ANY (ARRAY(SELECT id FROM was))
