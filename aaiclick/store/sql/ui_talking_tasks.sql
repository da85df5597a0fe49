-- Tasks of the job $1 that may have said something: at work, else the last ones that began; at most $2 of each.
WITH live AS MATERIALIZED (SELECT id, job_id, type, started_at FROM tasks WHERE status IN ('CLAIMED', 'RUNNING'))
(SELECT id, type, true AS working, started_at FROM live WHERE job_id = $1 ORDER BY id DESC LIMIT $2)
UNION ALL
(SELECT id, type, false, started_at FROM (
    SELECT id, type, started_at, status FROM tasks WHERE job_id = $1 ORDER BY id DESC LIMIT 2000
 ) AS t WHERE started_at IS NOT NULL AND status NOT IN ('CLAIMED', 'RUNNING') ORDER BY started_at DESC LIMIT $2)
