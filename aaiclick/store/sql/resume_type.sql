UPDATE task_types SET paused_at = NULL WHERE org_id = $1 AND name = $2
