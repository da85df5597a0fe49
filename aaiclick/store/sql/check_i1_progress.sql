-- I1: everything unfinished waits for something that will come.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'task' AS kind, t.id, 'blocked, though nothing stands in its way' AS finding FROM tasks t
    LEFT JOIN groups g ON g.id = t.group_id
    WHERE t.readiness = 'BLOCKED' AND t.unmet = 0 AND coalesce(g.unmet, 0) = 0
    UNION ALL
    SELECT 'task', t.id, 'waits for task ' || p.id || ', which ended ' || p.status FROM tasks t
    JOIN dependencies d ON d.next_id = t.id AND d.previous_type = 'task' JOIN tasks p ON p.id = d.previous_id
    WHERE t.readiness = 'BLOCKED' AND p.completed_at IS NOT NULL AND p.status <> 'COMPLETED' AND NOT p.passed_over
    UNION ALL
    SELECT 'task', t.id, 'waits for group ' || g.id || ', which cannot complete' FROM tasks t
    JOIN dependencies d ON d.next_id = t.id AND d.previous_type = 'group' JOIN groups g ON g.id = d.previous_id
    WHERE t.readiness = 'BLOCKED' AND g.failed_at IS NOT NULL
    UNION ALL
    SELECT 'task', t.id, 'held, though its key has a free slot and nothing is paused' FROM tasks t
    LEFT JOIN jobs j ON j.id = t.job_id
    WHERE t.readiness = 'HELD' AND j.paused_at IS NULL
      AND NOT EXISTS (SELECT FROM task_types y WHERE y.org_id = t.org_id AND y.name = t.type AND y.paused_at IS NOT NULL)
      AND (t.concurrency_key IS NULL OR NOT EXISTS (
          SELECT FROM tasks o WHERE o.org_id = t.org_id AND o.concurrency_key = t.concurrency_key
            AND (o.readiness = 'READY' OR o.status IN ('CLAIMED', 'RUNNING'))))
    UNION ALL
    SELECT 'task', t.id, 'lease ran out ' || round(extract(epoch FROM now() - t.lease_expires_at)) || ' s ago' FROM tasks t
    WHERE t.status IN ('CLAIMED', 'RUNNING') AND t.lease_expires_at < now() - $1::float8 * interval '1 second'
    UNION ALL
    SELECT 'task', t.id, 'due since ' || round(extract(epoch FROM now() - t.available_at)) || ' s and not ready' FROM tasks t
    WHERE t.readiness = 'TIME' AND t.available_at < now() - $1::float8 * interval '1 second'
    UNION ALL
    SELECT 'job', j.id, 'unfinished, though all its tasks have ended' FROM jobs j
    WHERE j.completed_at IS NULL AND j.open_tasks = 0 AND j.open_events = 0
) AS found
LIMIT 100
