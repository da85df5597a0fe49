-- How far the job $1 is: a row for each group and one (named '') for what is in none.
SELECT coalesce(g.name, '') AS name, count(*) AS total, count(*) FILTER (WHERE t.status = 'COMPLETED') AS completed,
    count(*) FILTER (WHERE t.status IN ('CLAIMED', 'RUNNING')) AS running,
    count(*) FILTER (WHERE t.status = 'DEAD_LETTER' OR (t.status = 'FAILED' AND t.next_retry_at IS NULL)) AS failed,
    count(*) FILTER (WHERE t.status = 'CANCELLED') AS cancelled
FROM tasks t LEFT JOIN groups g ON g.id = t.group_id
WHERE t.job_id = $1 GROUP BY g.id, g.name ORDER BY min(t.id)
