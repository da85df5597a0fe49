-- What the worker $1 holds, which of it is to be cancelled, and whether it was claimed long enough ago ($2 seconds) for the
-- worker to have heard of it.
SELECT id, attempt, lease_token, cancel_requested_at IS NOT NULL AS cancelled,
    claimed_at < now() - $2::float8 * interval '1 second' AS old
FROM tasks WHERE worker_id = $1 AND status IN ('CLAIMED', 'RUNNING')
