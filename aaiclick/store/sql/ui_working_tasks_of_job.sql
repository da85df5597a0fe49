-- Tasks of the job $1 after the id $2 that are at work (the state $3), of the type $4 (NULL: any), at most $5. Those of all jobs
-- are few, so they are looked through.
WITH live AS MATERIALIZED (SELECT id, job_id, status FROM tasks WHERE status IN ('CLAIMED', 'RUNNING'))
SELECT t.id, t.type, t.status::text, t.next_retry_at, t.queue, t.attempt, t.started_at, t.completed_at, t.error
FROM live l JOIN tasks t ON t.id = l.id
WHERE l.job_id = $1 AND l.id > $2 AND l.status = $3::task_status AND ($4::text IS NULL OR t.type = $4)
ORDER BY t.id LIMIT $5
