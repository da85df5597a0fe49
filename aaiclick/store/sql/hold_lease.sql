-- Keep the lease where it is until this transaction ends; no row: it is lost.
SELECT job_id, coalesce(depth, 0) AS depth FROM tasks WHERE id = $1 AND attempt = $2 AND lease_token = $3
FOR NO KEY UPDATE
