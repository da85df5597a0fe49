-- A leader whose last heartbeat lies in the future was elected before PostgreSQL's clock was set back: its term ends at
-- most $2 seconds from now, unless it extends it.
UPDATE workers SET leader_until = least(leader_until, coalesce($1::timestamptz, now()) + $2::float8 * interval '1 second'),
    last_heartbeat = coalesce($1::timestamptz, now())
WHERE is_leader AND last_heartbeat > coalesce($1::timestamptz, now()) + interval '1 second'
