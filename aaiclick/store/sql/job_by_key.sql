SELECT id FROM jobs WHERE org_id = $1 AND name = $2 AND idempotency_key = $3
