-- Delete workers that stopped more than $1 seconds ago.
DELETE FROM workers
WHERE status = 'STOPPED' AND stopped_at < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'
