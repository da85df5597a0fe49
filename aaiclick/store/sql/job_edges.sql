SELECT d.previous_id, d.next_id FROM dependencies d
WHERE d.previous_id IN (SELECT id FROM tasks WHERE job_id = $1 UNION ALL SELECT id FROM groups WHERE job_id = $1)
