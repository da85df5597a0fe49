-- The ids of the oldest events that are due at $2, at most $1.
SELECT id FROM outbox
WHERE status = 'Pending' AND kind = 'route_event' AND available_at <= coalesce($2::timestamptz, now()) ORDER BY id LIMIT $1::int
