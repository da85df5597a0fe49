UPDATE jobs SET paused_at = coalesce(paused_at, now()) WHERE id = $1 AND completed_at IS NULL RETURNING id
