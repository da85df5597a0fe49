-- What the worker $1 holds.
SELECT id, attempt, lease_token FROM tasks WHERE worker_id = $1 AND status IN ('CLAIMED', 'RUNNING')
