-- Keep the lease until this transaction ends; no row: it is lost.
SELECT id, org_id, job_id FROM tasks WHERE id = $1 AND attempt = $2 AND lease_token = $3 FOR NO KEY UPDATE
