-- What the attempt $2 of the task $1 has added no longer waits for that task.
DELETE FROM dependencies WHERE previous_id = $1 AND next_id = ANY (ARRAY(
    SELECT unnest(a.tasks || a.groups) FROM task_additions a WHERE a.task_id = $1 AND a.attempt = $2))
RETURNING next_id, next_type::text
