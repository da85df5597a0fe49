-- Tasks of the job $1 with ids above $2, in order, at most $3.
SELECT {tasks.*} FROM tasks WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $3
