-- What the tasks of the group $1 returned, and by which attempts; of the job $2, if it is given.
SELECT id, attempt, result::text AS result, started_at, completed_at FROM tasks WHERE group_id = $1
  AND ($2::bigint IS NULL OR job_id = $2) ORDER BY id
