-- Tasks of the job $1 after the id $2 that failed (the state $3), of the type $4 (NULL: any), at most $5. Whatever failed has an
-- attempt that tells of it, and those are few: $6 of them are looked at, instead of every task for whether it failed.
SELECT t.id, t.type, t.status::text, t.next_retry_at, t.queue, t.attempt, t.started_at, t.completed_at, t.error FROM (
    SELECT task_id FROM (
        SELECT task_id FROM task_attempts
        WHERE task_id > $2 AND task_id >= (SELECT id FROM tasks WHERE job_id = $1 ORDER BY id LIMIT 1)
          AND task_id <= (SELECT id FROM tasks WHERE job_id = $1 ORDER BY id DESC LIMIT 1)
        ORDER BY task_id LIMIT $6
    ) AS a GROUP BY task_id
) AS f JOIN tasks t ON t.id = f.task_id
WHERE t.job_id = $1 AND t.status = $3::task_status AND ($4::text IS NULL OR t.type = $4)
ORDER BY t.id LIMIT $5
