-- What the tasks of the group $1 returned, and by which attempts.
SELECT id, attempt, result::text AS result, started_at, completed_at FROM tasks WHERE group_id = $1 ORDER BY id
