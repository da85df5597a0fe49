-- name: list_queues
-- Queues of the org $1 with waiting tasks (counts bounded by $2) and throughput per minute over the last $3; by name,
-- those after $4, at most $5. Includes empty queues that workers name, that were active within a day, or that the last
-- job of a name used (of a hundred names). Names are found by a skip scan of the ready index, so the cost does not
-- depend on the number of tasks.
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

-- name: list_org_shares
-- Orgs with waiting and running tasks (waiting counts bounded by $1), and throughput per minute over the last $3.
WITH span AS (
    SELECT since, extract(epoch FROM now() - since)::float8 / 60 AS minutes
    FROM (SELECT date_trunc('minute', now()) - ($3::int - 1) * interval '1 minute' AS since) AS s
),
done AS MATERIALIZED (
    SELECT org_id, sum(completed)::float8 AS completed, sum(failed)::float8 AS failed FROM queue_minutes
    WHERE minute >= (SELECT since FROM span) GROUP BY org_id
),
live AS MATERIALIZED (
    SELECT org_id, count(*) AS running FROM tasks WHERE status IN ('CLAIMED', 'RUNNING') GROUP BY org_id
)
SELECT o.id, o.name, o.slug, o.weight, o.max_running, o.rate_per_second, o.paused_at, coalesce(l.running, 0) AS running,
    (SELECT count(*) FROM (
        SELECT FROM tasks t WHERE t.org_id = o.id AND t.readiness = 'READY' LIMIT $1) AS r) AS ready,
    (SELECT min(coalesce(r.available_at, r.updated_at)) FROM (
        SELECT t.available_at, t.updated_at FROM tasks t WHERE t.org_id = o.id AND t.readiness = 'READY' LIMIT 100) AS r)
        AS oldest_at,
    coalesce(d.completed, 0) / span.minutes AS completed, coalesce(d.failed, 0) / span.minutes AS failed
FROM orgs o CROSS JOIN span LEFT JOIN live l ON l.org_id = o.id LEFT JOIN done d ON d.org_id = o.id
ORDER BY 8 DESC, 9 DESC, o.slug LIMIT $2

-- name: load_org_counts
-- Current counts of the org $1, bounded by $2.
SELECT now() AS now,
    (SELECT count(*) FROM (SELECT FROM tasks WHERE org_id = $1 AND readiness = 'READY' LIMIT $2) AS r) AS ready,
    (SELECT min(coalesce(available_at, updated_at)) FROM (
        SELECT available_at, updated_at FROM tasks WHERE org_id = $1 AND readiness = 'READY' LIMIT 100) AS r) AS oldest_at,
    (SELECT count(*) FROM (SELECT FROM tasks WHERE status IN ('CLAIMED', 'RUNNING') AND org_id = $1 LIMIT $2) AS l) AS running,
    (SELECT count(*) FROM (SELECT FROM tasks WHERE org_id = $1 AND status = 'DEAD_LETTER' LIMIT $2) AS d) AS dead,
    (SELECT count(*) FROM (SELECT FROM jobs WHERE org_id = $1 AND completed_at IS NULL LIMIT $2) AS j) AS jobs,
    (SELECT count(*) FROM (
        SELECT FROM jobs WHERE org_id = $1 AND completed_at IS NULL AND failed_tasks > 0 LIMIT $2) AS f) AS failing,
    (SELECT count(*) FROM (SELECT FROM incidents WHERE org_id = $1 AND closed_at IS NULL LIMIT $2) AS i) AS incidents,
    (SELECT count(*) FROM (SELECT FROM incidents WHERE org_id = $1 AND closed_at IS NULL AND rule = 'channel_failing'
        LIMIT $2) AS c) AS failing_channels,
    (SELECT count(*) FROM workers WHERE status <> 'STOPPED' AND (org_id IS NULL OR org_id = $1)
        AND last_heartbeat > now() - $3::float8 * interval '1 second') AS workers

-- name: load_worker_totals
SELECT coalesce(sum(tasks_completed), 0)::bigint AS completed, coalesce(sum(tasks_failed), 0)::bigint AS failed FROM workers

-- name: list_org_workers
-- Workers that serve the org $1, its own and those of all orgs, newest first, stopped ones if $2; at most $3 after $4.
SELECT {workers.*} FROM workers
WHERE (org_id IS NULL OR org_id = $1) AND ($2 OR status <> 'STOPPED') ORDER BY id DESC LIMIT $3 OFFSET $4

-- name: list_worker_tasks
SELECT id, job_id, type, status::text, next_retry_at, attempt, claimed_at, started_at, lease_expires_at
FROM tasks WHERE worker_id = $1 AND status IN ('CLAIMED', 'RUNNING') ORDER BY id LIMIT $2

-- name: count_tasks_by_worker
SELECT worker_id, count(*) AS running FROM tasks WHERE status IN ('CLAIMED', 'RUNNING') AND org_id = $1 GROUP BY worker_id
