-- All tasks, by how they stand and who worked on them, and of the completed how long they took (bounds $1).
SELECT status::text, next_retry_at IS NOT NULL AS retried, worker_id, width_bucket(took, $1::float8[]) AS bucket,
    count(*) AS count, coalesce(sum(took), 0) AS seconds
FROM (
    SELECT status, next_retry_at, worker_id,
        CASE WHEN status = 'COMPLETED' THEN extract(epoch FROM completed_at - started_at)::float8 END AS took
    FROM tasks
) AS t GROUP BY 1, 2, 3, 4
