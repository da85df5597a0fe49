-- Every queue of the org $1 (NULL: of any) that has a setting or anything unfinished.
WITH live AS (
    SELECT org_id, queue, count(*) FILTER (WHERE readiness = 'READY') AS ready,
        count(*) FILTER (WHERE readiness = 'TIME') AS scheduled, count(*) FILTER (WHERE readiness = 'BLOCKED') AS blocked,
        count(*) FILTER (WHERE readiness = 'HELD') AS held, count(*) FILTER (WHERE lease_token IS NOT NULL) AS running
    FROM tasks WHERE (readiness IS NOT NULL OR status IN ('CLAIMED', 'RUNNING')) AND ($1::uuid IS NULL OR org_id = $1)
    GROUP BY org_id, queue
)
SELECT o.slug AS org, coalesce(l.queue, q.name) AS queue, coalesce(l.ready, 0) AS ready,
    coalesce(l.scheduled, 0) AS scheduled, coalesce(l.blocked, 0) AS blocked, coalesce(l.held, 0) AS held,
    coalesce(l.running, 0) AS running, q.max_running, q.rate_per_second, q.rate_burst,
    q.weight, q.paused_at
FROM live l FULL JOIN queues q ON q.org_id = l.org_id AND q.name = l.queue
JOIN orgs o ON o.id = coalesce(l.org_id, q.org_id)
WHERE $1::uuid IS NULL OR o.id = $1
ORDER BY o.slug, 2
