-- Workers that have not stopped, the age of their heartbeats, and whether it is within $1 seconds.
SELECT id, extract(epoch FROM now() - last_heartbeat)::float8 AS age,
    last_heartbeat > now() - $1::float8 * interval '1 second' AS active
FROM workers WHERE status <> 'STOPPED' ORDER BY id
