-- Tasks that wait for a worker, by queue: of every queue that has settings, workers of its own or has finished tasks in the last
-- day, and of every queue in which some wait; the deepest first, at most $1.
WITH ready AS (SELECT queue, count(*) AS ready FROM tasks WHERE readiness = 'READY' GROUP BY queue),
known AS (
    SELECT 'default' AS queue UNION SELECT name FROM queues UNION SELECT queue FROM queue_minutes
    UNION SELECT unnest(queues) FROM workers WHERE status <> 'STOPPED'
)
SELECT queue, coalesce(r.ready, 0) AS ready FROM known FULL JOIN ready r USING (queue) ORDER BY 2 DESC, 1 LIMIT $1
