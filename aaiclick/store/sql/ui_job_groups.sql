SELECT id, name, parent_group_id FROM groups WHERE job_id = $1 ORDER BY id LIMIT $2
