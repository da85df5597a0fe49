-- The jobs of the tasks $1.
SELECT id, job_id FROM tasks WHERE id = ANY ($1::bigint[])
