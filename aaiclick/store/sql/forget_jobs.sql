-- Delete up to $2 jobs that ended before $1 seconds ago, with everything in them. A job with a dead letter stays until that is
-- redriven or discarded; only those that failed are searched for one. Old ids first: what is old and stays is little.
-- Returns how many they were.
WITH old AS MATERIALIZED (
    SELECT id FROM jobs j WHERE completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
      AND NOT (failed_tasks > 0
        AND EXISTS (SELECT FROM tasks t WHERE t.job_id = j.id AND t.status = 'DEAD_LETTER'))
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING 1)
SELECT count(*) FROM gone
