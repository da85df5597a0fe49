-- I12: charged failures never exceed the most allowed, and poison ends as a dead letter.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, t.failures || ' of ' || t.max_attempts || ' attempts failed, and it is to be tried again'
        AS finding
    FROM tasks t WHERE t.failures >= t.max_attempts AND t.completed_at IS NULL
) AS found
LIMIT 100
