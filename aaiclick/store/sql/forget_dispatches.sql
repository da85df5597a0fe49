-- What was told of tasks that no longer wait for a runtime; at most $1 at once.
DELETE FROM dispatches WHERE task_id = ANY (ARRAY(
    SELECT d.task_id FROM dispatches d
    WHERE NOT EXISTS (SELECT FROM tasks t WHERE t.id = d.task_id AND t.readiness = 'READY') LIMIT $1))
