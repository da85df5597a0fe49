-- Leases that have run out, whoever held them. All live tasks are looked at: there are as many as workers have slots.
SELECT id, attempt, lease_token, failures, retry_policy, worker_id, job_id FROM tasks
WHERE status IN ('CLAIMED', 'RUNNING') AND lease_expires_at <= coalesce($2::timestamptz, now())
LIMIT $1
