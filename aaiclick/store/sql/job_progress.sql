-- How far the job $1 is: a row for each group and one (named '') for what is in none. Chunks of an operator say how many
-- rows each had: with the time since the first of them began, that is their rate.
SELECT coalesce(g.name, '') AS name, count(*) AS total, count(*) FILTER (WHERE t.status = 'COMPLETED') AS completed,
    count(*) FILTER (WHERE t.status IN ('CLAIMED', 'RUNNING')) AS running,
    count(*) FILTER (WHERE t.status = 'DEAD_LETTER' OR (t.status = 'FAILED' AND t.next_retry_at IS NULL)) AS failed,
    count(*) FILTER (WHERE t.status = 'CANCELLED') AS cancelled,
    sum((t.result ->> 'rows')::bigint) FILTER (WHERE t.result ? 'chunk')::bigint AS rows,
    extract(epoch FROM CASE WHEN count(*) FILTER (WHERE t.completed_at IS NULL) = 0 THEN max(t.completed_at)
        ELSE now() END - min(t.started_at))::float8 AS seconds
FROM tasks t LEFT JOIN groups g ON g.id = t.group_id
WHERE t.job_id = $1 GROUP BY g.id, g.name ORDER BY min(t.id)
