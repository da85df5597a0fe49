-- What the tasks $1 of the job $2 returned.
SELECT id, status::text, result::text AS result FROM tasks WHERE id = ANY ($1::bigint[]) AND job_id = $2
