-- The last thing an addition does: count $2 more tasks, unless the job has ended meanwhile.
UPDATE jobs SET total_tasks = total_tasks + $2, open_tasks = open_tasks + $2
WHERE id = $1 AND completed_at IS NULL AND cancel_requested_at IS NULL
RETURNING total_tasks
