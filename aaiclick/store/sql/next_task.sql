-- The first task of the job $1 that could run, if none of it runs.
SELECT t.id, t.type FROM tasks t
WHERE t.job_id = $1 AND t.readiness IN ('READY', 'TIME', 'HELD') AND NOT EXISTS (
    SELECT FROM tasks r WHERE r.job_id = $1 AND r.status IN ('CLAIMED', 'RUNNING')
)
ORDER BY t.readiness = 'TIME', t.id LIMIT 1
