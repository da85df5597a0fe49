-- How the org $1 stands; counts end at $2.
SELECT now() AS now,
    (SELECT count(*) FROM (SELECT FROM tasks WHERE org_id = $1 AND readiness = 'READY' LIMIT $2) AS r) AS ready,
    (SELECT min(coalesce(available_at, updated_at)) FROM (
        SELECT available_at, updated_at FROM tasks WHERE org_id = $1 AND readiness = 'READY' LIMIT 100) AS r) AS oldest_at,
    (SELECT count(*) FROM (SELECT FROM tasks WHERE status IN ('CLAIMED', 'RUNNING') AND org_id = $1 LIMIT $2) AS l) AS running,
    (SELECT count(*) FROM (SELECT FROM tasks WHERE org_id = $1 AND status = 'DEAD_LETTER' LIMIT $2) AS d) AS dead,
    (SELECT count(*) FROM (SELECT FROM jobs WHERE org_id = $1 AND completed_at IS NULL LIMIT $2) AS j) AS jobs,
    (SELECT count(*) FROM (
        SELECT FROM jobs WHERE org_id = $1 AND completed_at IS NULL AND failed_tasks > 0 LIMIT $2) AS f) AS failing,
    (SELECT count(*) FROM workers WHERE status <> 'STOPPED' AND (org_id IS NULL OR org_id = $1)
        AND last_heartbeat > now() - $3::float8 * interval '1 second') AS workers
