-- Delete workers that stopped more than $1 seconds ago, and what was counted for them.
WITH counted AS (
    DELETE FROM forgotten_figures WHERE kind = 'worker' AND status IN (
        SELECT id::text FROM workers
        WHERE status = 'STOPPED' AND stopped_at < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second')
)
DELETE FROM workers
WHERE status = 'STOPPED' AND stopped_at < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'
