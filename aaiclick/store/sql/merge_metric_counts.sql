-- Merge up to $1 rows of metric_counts, if there are as many; those of workers that are no longer known become anonymous.
WITH old AS (
    DELETE FROM metric_counts WHERE id = ANY (ARRAY(
        SELECT id FROM metric_counts WHERE (SELECT count(*) FROM (SELECT FROM metric_counts LIMIT $1) AS few) >= $1
        LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING kind, status, bucket, count, seconds,
        (SELECT w.id FROM workers w WHERE w.id = metric_counts.worker_id) AS worker_id
)
INSERT INTO metric_counts (kind, status, worker_id, bucket, count, seconds)
SELECT kind, status, worker_id, bucket, sum(count), sum(seconds) FROM old GROUP BY 1, 2, 3, 4
