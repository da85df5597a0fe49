-- Delete up to $2 jobs that ended before $1 seconds ago, with everything in them, which goes on counting (bounds $4). A job
-- with a dead letter stays until somebody decides; only those that failed are asked for one. Old ids first: what is old
-- and stays is little. Returns how many they were.
WITH old AS MATERIALIZED (
    SELECT id FROM jobs j WHERE completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
      AND NOT (failed_tasks > 0
        AND EXISTS (SELECT FROM tasks t WHERE t.job_id = j.id AND t.status = 'DEAD_LETTER'))
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
),
tasks_gone AS MATERIALIZED (
    SELECT t.status::text AS status, t.worker_id,
        CASE WHEN t.status = 'COMPLETED' THEN extract(epoch FROM t.completed_at - t.started_at)::float8 END AS took
    FROM tasks t WHERE t.job_id = ANY (ARRAY(SELECT id FROM old))
),
gone AS (
    DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old))
    RETURNING status::text AS status,
        CASE WHEN status = 'COMPLETED'
            THEN extract(epoch FROM completed_at - greatest(started_at, restarted_at))::float8 END AS took
),
counted AS (
    INSERT INTO forgotten_figures (kind, status, bucket, count, seconds)
    SELECT kind, status, CASE WHEN kind = 'worker' THEN -1 ELSE coalesce(width_bucket(took, $4::float8[]), -1) END,
        count(*), coalesce(sum(took), 0)
    FROM (
        SELECT 'job' AS kind, status, took FROM gone
        UNION ALL SELECT 'task', status, took FROM tasks_gone
        UNION ALL SELECT 'worker', w.id::text, took FROM tasks_gone JOIN workers w ON w.id = worker_id WHERE took IS NOT NULL
    ) AS g
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (kind, status, bucket) DO UPDATE SET
        count = forgotten_figures.count + EXCLUDED.count, seconds = forgotten_figures.seconds + EXCLUDED.seconds
)
SELECT count(*) FROM gone
