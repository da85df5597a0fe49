DELETE FROM workers
WHERE status = 'STOPPED' AND stopped_at < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'
