-- Who could claim what the job $1 has ready: of each queue of it the workers that were heard of within $2 seconds, or a row
-- without one. What a runtime elsewhere has to take is nobody's here: then, and where nothing is ready, whoever serves the
-- org at all counts. A thousand tasks are looked at: of a larger job the others come later.
WITH lane AS MATERIALIZED (
    SELECT DISTINCT t.queue FROM (
        SELECT queue FROM tasks WHERE job_id = $1 AND readiness IN ('READY', 'TIME', 'HELD') LIMIT 1000) t
    WHERE NOT starts_with(t.queue, 'runtime:') OR t.queue = 'runtime:dispatcher'
)
SELECT l.queue, w.hostname, w.pid
FROM jobs j
CROSS JOIN (SELECT queue FROM lane UNION ALL SELECT NULL WHERE NOT EXISTS (SELECT FROM lane)) l
LEFT JOIN workers w ON w.status <> 'STOPPED' AND w.drain_requested_at IS NULL
    AND w.last_heartbeat > now() - $2::float8 * interval '1 second'
    AND (w.org_id IS NULL OR w.org_id = j.org_id)
    AND CASE WHEN l.queue IS NULL THEN NOT EXISTS (SELECT FROM unnest(w.queues) q WHERE starts_with(q, 'runtime:'))
        WHEN w.queues <> '{}' THEN l.queue = ANY (w.queues)
        ELSE l.queue <> 'runtime:dispatcher' OR w.org_id IS NULL END
WHERE j.id = $1
