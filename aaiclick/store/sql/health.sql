-- Workers with a heartbeat within the last $2 seconds, those without one that have not stopped, tasks whose lease expired more
-- than $1 seconds ago and were not recovered, and events that could not be routed (counted up to 1,000).
SELECT (SELECT count(*) FROM workers
        WHERE status <> 'STOPPED' AND last_heartbeat > now() - $2::float8 * interval '1 second') AS workers,
    (SELECT count(*) FROM workers
        WHERE status <> 'STOPPED' AND last_heartbeat <= now() - $2::float8 * interval '1 second') AS silent,
    (SELECT count(*) FROM tasks WHERE status IN ('CLAIMED', 'RUNNING')
        AND lease_expires_at < now() - make_interval(secs => $1::float8)) AS stale,
    (SELECT count(*) FROM (SELECT FROM outbox WHERE status = 'Failed' LIMIT 1000) AS failed) AS unrouted
