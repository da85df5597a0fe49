-- The job of the task $1 of the org $4, if its attempt $2 holds the lease $3; no row: it does not.
SELECT job_id FROM tasks WHERE id = $1 AND attempt = $2 AND lease_token = $3 AND org_id = $4
