UPDATE jobs SET paused_at = NULL WHERE id = $1 RETURNING org_id
