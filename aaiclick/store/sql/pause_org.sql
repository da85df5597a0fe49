UPDATE orgs SET paused_at = coalesce(paused_at, now()) WHERE id = $1 RETURNING id
