-- I2: at most one live lease per task (the row has room for one), and attempts only rise.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'attempt ' || max(a.attempt) || ' is recorded, the task says ' || t.attempt AS finding
    FROM task_attempts a JOIN tasks t ON t.id = a.task_id
    GROUP BY t.id, t.attempt HAVING max(a.attempt) > t.attempt
    UNION ALL
    SELECT 'task', t.id, 'attempt ' || t.attempt || ' is recorded as over and still has a lease'
    FROM tasks t JOIN task_attempts a ON a.task_id = t.id AND a.attempt = t.attempt
    WHERE t.status IN ('CLAIMED', 'RUNNING')
) AS found
LIMIT 100
