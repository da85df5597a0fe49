-- Tasks of the job $2 of the org $1 after the id $3, in order; with status $4 and type $5 (NULL: any), at most $6.
SELECT {tasks.*} FROM tasks
WHERE job_id = $2 AND org_id = $1 AND id > $3 AND ($4::text IS NULL OR status = $4::task_status)
  AND ($5::text IS NULL OR type = $5)
ORDER BY id LIMIT $6
