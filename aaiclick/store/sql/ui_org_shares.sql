-- Every org with what waits and what runs of it (counts of what waits end at $1), and what was finished of it a minute in the last $3.
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
