-- Workers that are there, and how long ago they said so.
SELECT id, extract(epoch FROM now() - last_heartbeat)::float8 AS age FROM workers WHERE status <> 'STOPPED' ORDER BY id
