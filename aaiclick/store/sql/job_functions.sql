-- name: upsert_job_function
-- Insert a function of the org $1, or replace it.
INSERT INTO job_functions (org_id, {job_function_fields.*}) SELECT $1::uuid, {job_function_fields.$2}
ON CONFLICT (org_id, entrypoint) DO UPDATE
SET ({job_function_fields.*}, registered_at) = ROW ({job_function_fields.$2}, now())

-- name: delete_job_functions
-- Delete functions of the modules $2 of the org $1 that are not among the entrypoints $3.
DELETE FROM job_functions WHERE org_id = $1 AND module = ANY($2) AND entrypoint <> ALL($3)

-- name: get_job_function
-- The function $2 of the org $1.
SELECT {job_functions.*} FROM job_functions WHERE org_id = $1 AND entrypoint = $2

-- name: list_named_jobs
-- The last $3 jobs of the org $1 with the name $2.
SELECT id, status::text, created_at, completed_at FROM jobs WHERE org_id = $1 AND name = $2 ORDER BY id DESC LIMIT $3

-- name: list_job_functions
-- Functions of the org $1 after the entrypoint $2, at most $3, each with its last job.
SELECT {job_functions.*}, j.* FROM job_functions f
LEFT JOIN LATERAL (
    SELECT id AS job_id, status::text AS job_status, created_at AS job_at FROM jobs
    WHERE jobs.org_id = f.org_id AND jobs.name = f.name ORDER BY id DESC LIMIT 1
) AS j ON true
WHERE f.org_id = $1 AND f.entrypoint > $2 ORDER BY f.entrypoint LIMIT $3
