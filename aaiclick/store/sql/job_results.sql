-- What the job $1 came to: the results of those of its tasks that nothing waits for, the first $2.
SELECT id, coalesce(entrypoint, type) AS name, result::text AS result FROM tasks
WHERE job_id = $1 AND status = 'COMPLETED' AND NOT followed AND added_by IS NULL AND result IS NOT NULL
ORDER BY id LIMIT $2
