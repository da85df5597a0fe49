SELECT id, group_id FROM tasks WHERE job_id = $1
