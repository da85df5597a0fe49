-- name: explain_task
-- Facts about the state of the task $1. Tokens: what a rate limit allows now, computed as in `claim_tasks_fair`.
SELECT t.id, t.job_id, t.group_id, t.queue, t.type, t.status::text, t.readiness::text, t.available_at, t.attempt,
    t.failures, t.max_attempts, t.worker_id, t.lease_expires_at, t.cancel_requested_at, t.cause_id, t.concurrency_key, coalesce(t.concurrency_limit, 1) AS slots,
    t.rate, coalesce(t.rate_key, t.type) AS rate_key, r.next_at AS rate_next_at,
    w.wait_type, w.name AS wait_name, w.key AS wait_key, w.job_id AS wait_job_id, now() AS now, c.type AS cause_type, c.status::text AS cause_status,
    j.paused_at AS job_paused_at, o.paused_at AS org_paused_at, o.max_running AS org_max, o.rate_per_second AS org_rate,
    o.name AS org_name, q.paused_at AS queue_paused_at, q.max_running AS queue_max, q.rate_per_second AS queue_rate,
    CASE WHEN o.rate_per_second IS NOT NULL THEN
        least(ob.most, coalesce(o.rate_tokens, ob.most) + o.rate_per_second
            * greatest(0, extract(epoch FROM now() - o.rate_at))) END AS org_tokens,
    CASE WHEN q.rate_per_second IS NOT NULL THEN
        least(qb.most, coalesce(q.rate_tokens, qb.most) + q.rate_per_second
            * greatest(0, extract(epoch FROM now() - q.rate_at))) END AS queue_tokens,
    y.paused_at AS type_paused_at,
    (SELECT count(*) FROM tasks r WHERE r.status IN ('CLAIMED', 'RUNNING') AND r.org_id = t.org_id) AS org_running,
    (SELECT count(*) FROM tasks r WHERE r.status IN ('CLAIMED', 'RUNNING') AND r.org_id = t.org_id
        AND r.queue = t.queue) AS queue_running,
    (SELECT max(w.last_heartbeat) FROM workers w WHERE w.status <> 'STOPPED'
        AND (w.org_id IS NULL OR w.org_id = t.org_id)
        AND (CASE WHEN w.queues <> '{}' THEN t.queue = ANY (w.queues) ELSE NOT starts_with(t.queue, 'runtime:')
            OR (t.queue = 'runtime:dispatcher' AND w.org_id IS NULL) END
            OR (starts_with(t.queue, 'runtime:version:') AND aaiclick_serves_version(w.id, t.queue, w.queues)))) AS worker_last_heartbeat,
    h.last_heartbeat AS holder_last_heartbeat, d.sent AS dispatch_count, d.sent_at AS dispatched_at, d.error AS dispatch_error,
    (SELECT array_agg(r.id) FROM (
        SELECT r.id FROM tasks r WHERE r.org_id = t.org_id AND r.concurrency_key = t.concurrency_key
          AND (r.readiness = 'READY' OR r.status IN ('CLAIMED', 'RUNNING')) LIMIT 5) r) AS key_holders,
    (SELECT count(*) FROM (
        SELECT FROM tasks r WHERE r.readiness = 'READY' AND r.org_id = t.org_id AND r.queue = t.queue
          AND (r.priority > t.priority OR (r.priority = t.priority
               AND (COALESCE(r.job_id, r.id), r.id) < (COALESCE(t.job_id, t.id), t.id)))
        LIMIT 10000) AS earlier) AS ahead
FROM tasks t
LEFT JOIN tasks c ON c.id = t.cause_id
LEFT JOIN waits w ON w.task_id = t.id AND w.attempt = t.attempt AND t.readiness = 'TIME'
LEFT JOIN jobs j ON j.id = t.job_id
LEFT JOIN orgs o ON o.id = t.org_id
LEFT JOIN queues q ON q.org_id = t.org_id AND q.name = t.queue
LEFT JOIN task_types y ON y.org_id = t.org_id AND y.name = t.type
LEFT JOIN rate_limits r ON r.org_id = t.org_id AND r.key = coalesce(t.rate_key, t.type) AND t.rate IS NOT NULL
LEFT JOIN workers h ON h.id = t.worker_id
LEFT JOIN dispatches d ON d.task_id = t.id AND d.attempt = t.attempt
CROSS JOIN LATERAL (SELECT coalesce(o.rate_burst, greatest(o.rate_per_second, 1)) AS most) ob
CROSS JOIN LATERAL (SELECT coalesce(q.rate_burst, greatest(q.rate_per_second, 1)) AS most) qb
WHERE t.id = $1
