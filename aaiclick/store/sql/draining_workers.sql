SELECT id FROM workers WHERE id = ANY ($1::bigint[]) AND drain_requested_at IS NOT NULL
