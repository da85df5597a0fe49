-- The jobs of the tasks $1, in order.
SELECT DISTINCT job_id FROM tasks WHERE id = ANY ($1::bigint[]) AND job_id IS NOT NULL ORDER BY job_id
