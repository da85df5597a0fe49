-- Tasks that the workers $1 hold though they should have ended $2 seconds ago: cancelled, or past their time limit (of $3
-- seconds where the task has none).
SELECT id, attempt, lease_token, worker_id, cancel_requested_at IS NOT NULL AS cancelled,
    coalesce(timeout_seconds, $3::float8) AS timeout_seconds, failures, retry_policy
FROM tasks
WHERE worker_id = ANY ($1::bigint[]) AND status IN ('CLAIMED', 'RUNNING')
  AND least(cancel_requested_at,
            coalesce(started_at, claimed_at) + coalesce(timeout_seconds, $3::float8) * interval '1 second')
      < now() - $2::float8 * interval '1 second'
