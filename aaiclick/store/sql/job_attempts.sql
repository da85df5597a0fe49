-- Attempts of the job $1 that did not succeed, latest first, at most $2.
SELECT a.task_id, t.type, a.attempt, a.outcome::text, a.worker_id, a.ended_at, a.error FROM tasks t
JOIN task_attempts a ON a.task_id = t.id WHERE t.job_id = $1 ORDER BY a.ended_at DESC, a.task_id, a.attempt LIMIT $2
