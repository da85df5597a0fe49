-- What metrics counted of rows that were deleted or have started over.
SELECT kind, status, worker_id, nullif(bucket, -1) AS bucket, sum(count)::bigint AS count, sum(seconds) AS seconds
FROM metric_counts GROUP BY 1, 2, 3, 4
