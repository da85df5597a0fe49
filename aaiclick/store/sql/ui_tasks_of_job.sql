-- Tasks of the job $1 after the id $2, in order: of the next $6, those with status $3 and type $4 (NULL: any), at most $5. A
-- statement of its own: one that others prepare keeps the plan that it got there (see ui_prefer_indexes).
SELECT id, type, status::text, next_retry_at, queue, attempt, started_at, completed_at, error FROM (
    SELECT * FROM tasks WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $6
) AS next WHERE ($3::text IS NULL OR status = $3::task_status) AND ($4::text IS NULL OR type = $4) ORDER BY id LIMIT $5
