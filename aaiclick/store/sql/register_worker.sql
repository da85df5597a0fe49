-- Who asks twice, since the first answer was lost, is the same worker; so is one that was taken for dead and is back.
INSERT INTO workers (id, hostname, pid, pool_size, version, queues, org_id, log_directory)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO UPDATE SET last_heartbeat = now(), stopped_at = NULL,
    status = CASE WHEN workers.status = 'STOPPED' THEN 'ACTIVE' ELSE workers.status END
WHERE workers.org_id IS NOT DISTINCT FROM EXCLUDED.org_id
RETURNING {workers.*}
