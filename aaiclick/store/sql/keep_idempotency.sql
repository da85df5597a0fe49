INSERT INTO idempotency_keys (org_id, route, key, body_hash, status, body) VALUES ($1, $2, $3, $4, $5, $6)
