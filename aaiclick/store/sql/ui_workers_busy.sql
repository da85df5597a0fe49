SELECT worker_id, count(*) AS running FROM tasks WHERE status IN ('CLAIMED', 'RUNNING') AND org_id = $1 GROUP BY worker_id
