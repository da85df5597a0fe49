-- What the worker $1 holds, which of it is to be cancelled, and how long ago it was claimed.
SELECT id, attempt, lease_token, cancel_requested_at IS NOT NULL AS cancelled,
    extract(epoch FROM clock_timestamp() - claimed_at)::float8 AS age_seconds
FROM tasks WHERE worker_id = $1 AND status IN ('CLAIMED', 'RUNNING')
