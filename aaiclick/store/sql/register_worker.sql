-- Who asks twice, since the first answer was lost, is the same worker.
INSERT INTO workers (id, hostname, pid, pool_size, version, queues, org_id)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET last_heartbeat = now()
WHERE workers.org_id IS NOT DISTINCT FROM EXCLUDED.org_id AND workers.status <> 'STOPPED'
RETURNING *
