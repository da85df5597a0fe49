-- Queues of the org $1 with what waits in them (counts end at $2), and what was finished of them a minute in the last $3; by name,
-- those after $4, at most $5. Those that
-- workers name, or worked on within a day, or the last job of a name (of a hundred names), are there when they are empty too. Names
-- are found by jumping through the index of ready tasks, so a million of them cost no more than a few.
WITH RECURSIVE names (queue) AS (
    (SELECT queue FROM tasks WHERE org_id = $1 AND readiness = 'READY' AND queue > $4 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue FROM tasks t WHERE t.org_id = $1 AND t.readiness = 'READY' AND t.queue > n.queue
            ORDER BY t.queue LIMIT 1) FROM names n WHERE n.queue IS NOT NULL
),
span AS (
    SELECT since, extract(epoch FROM now() - since)::float8 / 60 AS minutes
    FROM (SELECT date_trunc('minute', now()) - ($3::int - 1) * interval '1 minute' AS since) AS s
),
recent (queue, n) AS (
    (SELECT queue, 1 FROM queue_minutes WHERE org_id = $1 AND queue > $4 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT m.queue FROM queue_minutes m WHERE m.org_id = $1 AND m.queue > r.queue ORDER BY m.queue LIMIT 1), r.n + 1
    FROM recent r WHERE r.queue IS NOT NULL AND r.n < $5::int
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
kinds (name, n) AS (
    (SELECT name, 1 FROM jobs WHERE org_id = $1 ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT j.name FROM jobs j WHERE j.org_id = $1 AND j.name > k.name ORDER BY j.name LIMIT 1), k.n + 1
    FROM kinds k WHERE k.name IS NOT NULL AND k.n < 100
),
used AS (
    SELECT t.queue FROM kinds k
    CROSS JOIN LATERAL (SELECT id FROM jobs WHERE org_id = $1 AND name = k.name ORDER BY id DESC LIMIT 1) AS j
    CROSS JOIN LATERAL (SELECT queue FROM tasks WHERE job_id = j.id ORDER BY id LIMIT 10) AS t
    UNION SELECT unnest(queues) FROM workers WHERE (org_id = $1 OR org_id IS NULL) AND stopped_at IS NULL
),
every (name) AS (
    SELECT 'default' UNION SELECT queue FROM used UNION SELECT queue FROM recent WHERE queue IS NOT NULL UNION
    SELECT queue FROM names WHERE queue IS NOT NULL UNION SELECT queue FROM live UNION SELECT queue FROM later
    UNION SELECT queue FROM aside UNION SELECT name FROM queues WHERE org_id = $1
)
SELECT e.name, coalesce(l.running, 0) AS running, coalesce(s.scheduled, 0) AS scheduled, coalesce(h.held, 0) AS held,
    (SELECT count(*) FROM (
        SELECT FROM tasks t WHERE t.org_id = $1 AND t.queue = e.name AND t.readiness = 'READY' LIMIT $2) AS r) AS ready,
    (SELECT min(coalesce(r.available_at, r.updated_at)) FROM (
        SELECT t.available_at, t.updated_at FROM tasks t WHERE t.org_id = $1 AND t.queue = e.name AND t.readiness = 'READY'
        LIMIT 100) AS r) AS oldest_at,
    m.completed, m.failed,
    coalesce(q.weight, 1) AS weight, q.max_running, q.rate_per_second, q.rate_burst, q.paused_at
FROM every e LEFT JOIN live l ON l.queue = e.name LEFT JOIN later s ON s.queue = e.name
CROSS JOIN span CROSS JOIN LATERAL (
    SELECT coalesce(sum(completed), 0)::float8 / span.minutes AS completed, coalesce(sum(failed), 0)::float8 / span.minutes AS failed
    FROM queue_minutes WHERE org_id = $1 AND queue = e.name AND minute >= span.since) AS m
LEFT JOIN aside h ON h.queue = e.name LEFT JOIN queues q ON q.org_id = $1 AND q.name = e.name
WHERE e.name > $4::text ORDER BY e.name LIMIT $5::int
