-- Queues of the org $1 with what waits in them; counts end at $2. Names are found by jumping through the index of ready
-- tasks, so a million of them cost no more than a few.
WITH RECURSIVE names (queue) AS (
    (SELECT queue FROM tasks WHERE org_id = $1 AND readiness = 'READY' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue FROM tasks t WHERE t.org_id = $1 AND t.readiness = 'READY' AND t.queue > n.queue
            ORDER BY t.queue LIMIT 1) FROM names n WHERE n.queue IS NOT NULL
),
live AS (
    SELECT queue, count(*) AS running FROM tasks WHERE status IN ('CLAIMED', 'RUNNING') AND org_id = $1 GROUP BY queue
),
later AS (
    SELECT queue, count(*) AS scheduled FROM (
        SELECT queue FROM tasks WHERE readiness = 'TIME' AND org_id = $1 LIMIT $2) AS t GROUP BY queue
),
aside AS (
    SELECT queue, count(*) AS held FROM (
        SELECT queue FROM tasks WHERE readiness = 'HELD' AND org_id = $1 LIMIT $2) AS t GROUP BY queue
),
every (name) AS (
    SELECT queue FROM names WHERE queue IS NOT NULL UNION SELECT queue FROM live UNION SELECT queue FROM later
    UNION SELECT queue FROM aside UNION SELECT name FROM queues WHERE org_id = $1
)
SELECT e.name, coalesce(l.running, 0) AS running, coalesce(s.scheduled, 0) AS scheduled, coalesce(h.held, 0) AS held,
    (SELECT count(*) FROM (
        SELECT FROM tasks t WHERE t.org_id = $1 AND t.queue = e.name AND t.readiness = 'READY' LIMIT $2) AS r) AS ready,
    (SELECT min(coalesce(r.available_at, r.updated_at)) FROM (
        SELECT t.available_at, t.updated_at FROM tasks t WHERE t.org_id = $1 AND t.queue = e.name AND t.readiness = 'READY'
        LIMIT 100) AS r) AS oldest_at,
    coalesce(q.weight, 1) AS weight, q.max_running, q.rate_per_second, q.rate_burst, q.paused_at
FROM every e LEFT JOIN live l ON l.queue = e.name LEFT JOIN later s ON s.queue = e.name
LEFT JOIN aside h ON h.queue = e.name LEFT JOIN queues q ON q.org_id = $1 AND q.name = e.name
ORDER BY e.name LIMIT 500
