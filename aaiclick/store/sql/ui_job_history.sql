-- Attempts of the job $1 that did not succeed, latest first, at most $2. They are few: those between the job's first and
-- last task are looked at, instead of every task for whether it has one.
SELECT a.task_id, t.type, a.attempt, a.outcome::text, a.worker_id, a.ended_at, a.error FROM (
    SELECT * FROM task_attempts
    WHERE task_id >= (SELECT id FROM tasks WHERE job_id = $1 ORDER BY id LIMIT 1)
      AND task_id <= (SELECT id FROM tasks WHERE job_id = $1 ORDER BY id DESC LIMIT 1)
    ORDER BY task_id DESC LIMIT 5000
) AS a JOIN tasks t ON t.id = a.task_id
WHERE t.job_id = $1 ORDER BY a.ended_at DESC, a.task_id, a.attempt LIMIT $2
