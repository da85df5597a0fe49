-- Delete up to $2 jobs that ended before $1 seconds ago, with everything in them. Old ids first: what is old and
-- not over is little.
WITH old AS MATERIALIZED (
    SELECT id FROM jobs WHERE completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old))
