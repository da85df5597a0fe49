UPDATE orgs SET paused_at = NULL WHERE id = $1 RETURNING id
