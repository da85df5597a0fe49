-- I9: a job counts its events that are not routed, and none waits for long. A Failed event is no violation: doctor shows it apart.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'job' AS kind, j.id, format('it counts %s events that wait, and there are %s', j.open_events, o.waiting) AS finding
    FROM jobs j CROSS JOIN LATERAL (
        SELECT count(*) AS waiting FROM outbox o WHERE o.job_id = j.id AND o.status IN ('Pending', 'Processing')) AS o
    WHERE (j.completed_at IS NULL OR j.open_events > 0) AND j.open_events <> o.waiting
    UNION ALL
    SELECT 'event', o.id, 'it has waited for a router since ' || o.created_at
    FROM outbox o WHERE o.status = 'Pending' AND o.kind = 'route_event' AND greatest(o.created_at, o.available_at)
      < now() - interval '1 second' * $1::float8
    UNION ALL
    -- No foreign key says so: its check would be a fifth of what routing costs, and definitions are never deleted.
    SELECT 'task', t.id, format('its definition %s is not there', t.definition_id)
    FROM tasks t WHERE t.definition_id IS NOT NULL AND NOT EXISTS (SELECT FROM job_definitions d WHERE d.id = t.definition_id)
) AS found
LIMIT 100
