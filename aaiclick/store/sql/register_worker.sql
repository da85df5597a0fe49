INSERT INTO workers (id, hostname, pid, pool_size, version, queues)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING *
