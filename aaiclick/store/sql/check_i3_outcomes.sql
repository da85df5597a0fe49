-- I3: one outcome per attempt (the key of task_attempts), and the attempt that succeeded has no other.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'attempt ' || t.attempt || ' is recorded as ' || a.outcome || ', the task is COMPLETED'
        AS finding
    FROM tasks t JOIN task_attempts a ON a.task_id = t.id AND a.attempt = t.attempt
    WHERE t.status = 'COMPLETED'
) AS found
LIMIT 100
