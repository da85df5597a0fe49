-- Tasks of the job $1 that ended otherwise than well, by themselves: roots of what was cancelled because of them.
SELECT id, status::text FROM tasks
WHERE job_id = $1 AND completed_at IS NOT NULL AND status <> 'COMPLETED' AND cause_id IS NULL AND NOT passed_over
