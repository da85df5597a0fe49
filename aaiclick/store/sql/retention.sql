-- name: delete_old_jobs
-- Delete up to $2 jobs that ended more than $1 seconds ago, with everything in them; returns how many. A job with a
-- dead letter stays until that is redriven or discarded; only failed jobs are checked for one. Oldest ids first: few
-- old jobs remain.
WITH old AS MATERIALIZED (
    SELECT id FROM jobs j WHERE completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
      AND NOT (failed_tasks > 0
        AND EXISTS (SELECT FROM tasks t WHERE t.job_id = j.id AND t.status = 'DEAD_LETTER'))
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING 1)
SELECT count(*) FROM gone

-- name: delete_old_tasks
-- Delete up to $2 tasks without a job that ended more than $1 seconds ago, with their table references; returns how
-- many. Dead letters stay until they are redriven or discarded.
WITH old AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE job_id IS NULL AND status <> 'DEAD_LETTER'
      AND completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second'
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
),
released AS (
    DELETE FROM table_references WHERE owner_id = ANY (ARRAY(SELECT id FROM old)) AND owner IN ('RESULT', 'TASK')
),
gone AS (DELETE FROM tasks WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING 1)
SELECT count(*) FROM gone

-- name: delete_old_workers
-- Delete workers that stopped more than $1 seconds ago. Those with a code version stay while a task with an attempt of
-- theirs exists: the $3 oldest tasks are searched, and workers that may have run others stay. Without an index of tasks
-- by worker, which each claim would have to update.
WITH old AS MATERIALIZED (SELECT id, worker_id, created_at FROM tasks ORDER BY id LIMIT $3),
attempted AS MATERIALIZED (
    SELECT worker_id FROM old WHERE worker_id IS NOT NULL
    UNION
    SELECT a.worker_id FROM task_attempts a WHERE a.task_id IN (SELECT id FROM old) AND a.worker_id IS NOT NULL
)
DELETE FROM workers
WHERE status = 'STOPPED' AND stopped_at < coalesce($2::timestamptz, now()) - $1::float8 * interval '1 second'
  AND (code_version IS NULL OR (
    stopped_at < coalesce((SELECT created_at FROM old ORDER BY id OFFSET $3 - 1 LIMIT 1), 'infinity')
    AND id NOT IN (SELECT worker_id FROM attempted)))

-- name: delete_old_queue_minutes
-- Delete throughput counts of queues older than a day.
DELETE FROM queue_minutes WHERE minute < coalesce($1::timestamptz, now()) - interval '1 day'

-- name: delete_old_rate_limits
-- Delete up to $1 rate keys without a claim for two days: a period is a day at most.
DELETE FROM rate_limits r USING (
    SELECT org_id, key FROM rate_limits
    WHERE next_at IS NULL AND charged_at < coalesce($2::timestamptz, now()) - interval '2 days'
    LIMIT $1 FOR UPDATE SKIP LOCKED) o
WHERE r.org_id = o.org_id AND r.key = o.key

-- name: merge_metric_counts
-- Merge up to $1 rows of metric_counts, if there are as many; counts of deleted workers lose their worker.
WITH old AS (
    DELETE FROM metric_counts WHERE id = ANY (ARRAY(
        SELECT id FROM metric_counts WHERE (SELECT count(*) FROM (SELECT FROM metric_counts LIMIT $1) AS few) >= $1
        LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING kind, status, bucket, count, seconds,
        (SELECT w.id FROM workers w WHERE w.id = metric_counts.worker_id) AS worker_id
)
INSERT INTO metric_counts (kind, status, worker_id, bucket, count, seconds)
SELECT kind, status, worker_id, bucket, sum(count), sum(seconds) FROM old GROUP BY 1, 2, 3, 4

-- name: set_lock_timeout
-- Set the lock timeout of the session; returns the previous one.
WITH before AS MATERIALIZED (SELECT current_setting('lock_timeout') AS setting)
SELECT b.setting FROM before b WHERE set_config('lock_timeout', $1, false) IS NOT NULL
