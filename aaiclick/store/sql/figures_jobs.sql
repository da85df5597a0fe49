-- All jobs, by how they stand, and of the completed how long they took (bounds $1).
SELECT status::text, width_bucket(took, $1::float8[]) AS bucket, count(*) AS count, coalesce(sum(took), 0) AS seconds
FROM (
    SELECT status, CASE WHEN status = 'COMPLETED'
        THEN extract(epoch FROM completed_at - greatest(started_at, restarted_at))::float8 END AS took
    FROM jobs
) AS j GROUP BY 1, 2
