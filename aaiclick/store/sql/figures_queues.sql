-- What waits for a worker, by queue: the deepest first, at most $1.
SELECT queue, count(*) AS ready FROM tasks WHERE readiness = 'READY' GROUP BY queue ORDER BY 2 DESC, 1 LIMIT $1
