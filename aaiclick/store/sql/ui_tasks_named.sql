SELECT id, group_id, type, status::text, next_retry_at FROM tasks WHERE id = ANY ($1::bigint[])
