-- The last of the $3 + 1 tasks of the job $1 after the id $2 that a look at them saw; none if there are fewer.
SELECT id FROM tasks WHERE job_id = $1 AND id > $2 ORDER BY id OFFSET $3 LIMIT 1
