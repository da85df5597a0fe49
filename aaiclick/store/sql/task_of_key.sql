SELECT {tasks.*} FROM tasks WHERE org_id = $1 AND type = $2 AND idempotency_key = $3
