-- What the job $1 came to: the results of those of its tasks that nothing waits for, the first $2. A task that returned
-- what it had added was followed by that once, and is no more.
SELECT id, definition_id, coalesce(entrypoint, type) AS name, result::text AS result FROM tasks t
WHERE job_id = $1 AND status = 'COMPLETED' AND added_by IS NULL AND result IS NOT NULL
  AND (NOT followed OR NOT EXISTS (SELECT FROM dependencies d WHERE d.previous_id = t.id))
ORDER BY id LIMIT $2
