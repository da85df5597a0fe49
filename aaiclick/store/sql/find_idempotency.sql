SELECT body_hash, status, body FROM idempotency_keys WHERE org_id = $1 AND route = $2 AND key = $3
