UPDATE queues SET paused_at = NULL WHERE org_id = $1 AND name = $2
