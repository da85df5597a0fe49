SELECT id, result::text FROM tasks WHERE id = ANY ($1::bigint[])
