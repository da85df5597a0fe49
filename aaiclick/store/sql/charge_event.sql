-- Charge the event $1 an attempt that failed by $2: the $3-th makes it Failed, else it waits $4 · $5^(n - 1) seconds.
UPDATE outbox SET attempts = attempts + 1, last_error = $2,
    status = CASE WHEN attempts + 1 >= $3::int THEN 'Failed' ELSE 'Pending' END::outbox_status,
    processed_at = CASE WHEN attempts + 1 >= $3::int THEN coalesce($6::timestamptz, now()) END,
    available_at = coalesce($6::timestamptz, now()) + $4::float8 * power($5::float8, attempts) * interval '1 second'
WHERE id = $1 AND status = 'Pending'
RETURNING status::text
