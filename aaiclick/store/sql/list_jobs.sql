-- Jobs, newest first: of the org $1 (NULL: any), with status $2, older than the id $3, at most $4.
SELECT {jobs.*} FROM jobs
WHERE ($1::uuid IS NULL OR org_id = $1) AND ($2::text IS NULL OR status = $2::job_status) AND id < $3
ORDER BY id DESC LIMIT $4
