-- Keep the lease where it is until this transaction ends; no row: it is lost. What is added under a lease counts with the
-- completion, which comes after it in the log and waits for the disk: this commit need not.
SELECT job_id, coalesce(depth, 0) AS depth, cancel_requested_at IS NOT NULL AS cancelled, set_config('synchronous_commit', 'off', true) FROM tasks
WHERE id = $1 AND attempt = $2 AND lease_token = $3 FOR NO KEY UPDATE
