-- Delete up to $2 tasks without a job that ended before $1 seconds ago, with the tables they hold; dead letters stay
-- until somebody decides. They go on counting (bounds $4). Returns how many they were.
WITH old AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE job_id IS NULL AND status <> 'DEAD_LETTER'
      AND completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
),
released AS (
    DELETE FROM table_references WHERE owner_id = ANY (ARRAY(SELECT id FROM old)) AND owner IN ('RESULT', 'TASK')
),
gone AS (
    DELETE FROM tasks WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING status, worker_id, started_at, completed_at
),
timed AS (
    SELECT status, worker_id,
        CASE WHEN status = 'COMPLETED' THEN extract(epoch FROM completed_at - started_at)::float8 END AS took
    FROM gone
),
counted AS (
    INSERT INTO forgotten_figures (kind, status, bucket, count, seconds)
    SELECT kind, status, CASE WHEN kind = 'worker' THEN -1 ELSE coalesce(width_bucket(took, $4::float8[]), -1) END,
        count(*), coalesce(sum(took), 0)
    FROM (
        SELECT 'task' AS kind, status::text AS status, took FROM timed
        UNION ALL SELECT 'worker', w.id::text, took FROM timed JOIN workers w ON w.id = worker_id WHERE took IS NOT NULL
    ) AS t
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (kind, status, bucket) DO UPDATE SET
        count = forgotten_figures.count + EXCLUDED.count, seconds = forgotten_figures.seconds + EXCLUDED.seconds
)
SELECT count(*) FROM gone
